//! Clients over HTTP: Streamable HTTP on `/mcp`, and the older pair `/sse` and `/messages`.
//! Owns: the listener, who may come in, sessions by their ids.      Never: knows what a message says.
//! In: requests.  Out: answers as one document or as a stream of events.
//! Tests: beside each part, and `metamcp/tests/http`.

pub mod stream;
