//! stub

use crate::config::ServerConfig;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Machine,
    Project,
    Session,
}

#[derive(Debug, Clone, Default)]
pub struct SaidOfItself {
    pub asks_roots: bool,
    pub server_name: String,
    pub title: Option<String>,
    pub tool_names: Vec<String>,
    pub declared: Option<Scope>,
}

#[derive(Debug, Clone)]
pub struct Why(pub String);

pub fn of(_config: &ServerConfig, _said: &SaidOfItself) -> (Scope, Why) {
    (Scope::Project, Why(String::new()))
}

impl Scope {
    pub fn from_word(_: &str) -> Option<Scope> {
        None
    }
}
