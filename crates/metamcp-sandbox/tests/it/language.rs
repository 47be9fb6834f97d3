//! What a script sees: values, calls, errors, polyfills.

use serde_json::json;

use crate::common::*;

#[test]
fn the_value_is_what_is_returned() {
    assert_eq!(value("return 1 + 1"), json!(2));
}
