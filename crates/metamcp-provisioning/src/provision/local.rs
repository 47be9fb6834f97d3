//! Whether a tool that is here already meets a need.

use metamcp_search::search::{Hit, Index, meets, tokens};

/// Words that say how or which, and never what: a tool that shares nothing else with a need is about something else, however
/// sure the ranking of a small catalog is. It has seen too few words to know how common these are.
const SAYS_NOT_WHAT: &str = "get list find search show create make new send read write set add update delete remove check run use \
    manage give fetch look need want help can all any some other more many latest recent current currently now today last next first \
    my your our a an the of for to in on with from by and or it is this that tool server service data info information";

/// Whether the first of the hits probably meets the need, so that nothing has to be looked for elsewhere.
pub fn is_met(index: &Index, need: &str, hits: &[Hit]) -> bool {
    let Some(first) = hits.first().filter(|_| meets(hits)) else { return false };
    let shared = index.words_of(need, &first.server, &first.tool().name);
    let empty = tokens(SAYS_NOT_WHAT);
    shared.is_empty() || shared.iter().any(|(word, _)| !empty.contains(word))
}
