// Written by metamcp, and again whenever it is not like this.
//
// Node loads this file before the program it runs. It puts arguments that are secrets into their places: whatever is
// in the command line itself can be read by every user of the machine. The variable they come in is gone before any
// code of the program runs, so nothing that the program starts gets it.
'use strict';
const given = process.env.METAMCP_ARGUMENTS;
delete process.env.METAMCP_ARGUMENTS;
if (given !== undefined) {
  for (const [place, value] of JSON.parse(given)) process.argv[place + 2] = value;
  // What the program forks is run without this file, as it would be if this file were not here.
  if (process.execArgv[0] === '--require') process.execArgv.splice(0, 2);
}
