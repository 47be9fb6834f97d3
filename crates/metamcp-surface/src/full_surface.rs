//! The full surface: search, list, describe, run, chain, execute.
//! Owns: names and schemas of its tools, parsing of arguments, rendering of responses.      Never: searches, calls, classifies errors.
//! In: arguments as JSON; what was found or returned.  Out: requests; responses that conform to their published schema.
//! Tests: `full_surface/tests.rs`.

mod answer;
mod arguments;
mod chain;
mod document;
mod request;
mod table;
mod tool_result;

pub use answer::{
    CodeResponse, RunResponse, SearchResponse, StepResponse, answer, chain, code, found,
    namespaces, refused, run,
};
pub use arguments::BadArguments;
pub use chain::{BadReference, CompletedStep, MAX_STEPS, arguments_of, pointed};
pub use document::{
    Documented, Example, Level, definition_of, describe, examples, list_examples, summary,
};
pub use request::{
    ChainRequest, CodeRequest, DescribeRequest, ExamplesRequest, ListRequest, MAX_EXAMPLES,
    RunRequest, SearchRequest, StepRequest,
};
pub use table::{NAMES, error_schema, instructions, output_schema, tools};
pub use tool_result::{ToolResult, read};

#[cfg(test)]
mod tests;
