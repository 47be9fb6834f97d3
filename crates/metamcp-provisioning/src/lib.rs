//! What may be installed: candidates, checks, plans and approvals.
//! Pure: no I/O, no clock, no environment. See ARCHITECTURE.md for the map.

pub mod provision;
