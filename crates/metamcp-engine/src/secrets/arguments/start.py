# Written by metamcp, and again whenever it is not like this.
#
# Runs the Python program that its first argument names as if it had been run itself, with arguments that are secrets in
# their places: whatever is in the command line itself can be read by every user of the machine. The variable they come
# in is gone before any code of the program runs, so nothing that the program starts gets it.
import json
import os
import runpy
import sys

given = json.loads(os.environ.pop("METAMCP_ARGUMENTS", "[]"))
del sys.argv[0]
for place, value in given:
    sys.argv[place + 1] = value
if not getattr(sys.flags, "safe_path", False):
    # The first place where modules are looked for is the folder of the program.
    sys.path[0] = os.path.dirname(sys.argv[0])
del given
runpy.run_path(sys.argv[0], run_name="__main__")
