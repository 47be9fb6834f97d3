//! The arguments of each tool.

use super::arguments::{Arguments, BadArguments};
use super::chain::MAX_STEPS;
use super::document::Level;
use crate::discover::{DEFAULT_LIMIT, MAX_LIMIT};
use metamcp_wire::object;

/// Most examples of one tool; more is clamped, not refused.
pub const MAX_EXAMPLES: usize = 5;
/// Longest time a chain or a script may ask for: a day is longer than any client waits.
const LONGEST_MS: u64 = 86_400_000;
const WHICH: &str = "a tool's id, NAMESPACE:NAME";

/// `search_tools`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchRequest {
    /// What the tool should do.
    pub query: String,
    /// Tools on a page; 0 if the caller leaves it to us.
    pub limit: usize,
    /// Where to go on.
    pub cursor: Option<String>,
}

impl SearchRequest {
    pub fn decode(raw: Option<&[u8]>) -> Result<Self, BadArguments> {
        let given = Arguments::read("search_tools", raw, &["query", "limit", "cursor"])?;
        Ok(Self {
            query: given.needed("query", "what the tool should do, in words")?,
            limit: asked_limit(&given)?.unwrap_or(0),
            cursor: given.text("cursor")?,
        })
    }
}

/// `list_tools` and `list_namespaces`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListRequest {
    /// Only of this server.
    pub namespace: Option<String>,
    /// Only of this kind of server; there is but one.
    pub kind: Option<String>,
    /// Items on a page.
    pub limit: usize,
    /// Where to go on.
    pub cursor: Option<String>,
}

impl ListRequest {
    /// Reads the arguments of `list_tools`.
    pub fn tools(raw: Option<&[u8]>) -> Result<Self, BadArguments> {
        let known = ["namespace", "backend_kind", "backend_name", "limit", "cursor"];
        let given = Arguments::read("list_tools", raw, &known)?;
        let (namespace, server) = (given.text("namespace")?, given.text("backend_name")?);
        if let (Some(one), Some(other)) = (&namespace, &server)
            && one != other
        {
            return Err(given.malformed("backend_name", "the same as `namespace`"));
        }
        let kind = given.text("backend_kind")?;
        if kind.as_deref().is_some_and(|kind| !matches!(kind, "mcp" | "local" | "provider")) {
            return Err(given.malformed("backend_kind", "\"mcp\", \"local\" or \"provider\""));
        }
        Ok(Self {
            namespace: namespace.or(server),
            kind,
            limit: limit(&given)?,
            cursor: given.text("cursor")?,
        })
    }

    /// Reads the arguments of `list_namespaces`.
    pub fn namespaces(raw: Option<&[u8]>) -> Result<Self, BadArguments> {
        let given = Arguments::read("list_namespaces", raw, &["limit", "cursor"])?;
        let (limit, cursor) = (limit(&given)?, given.text("cursor")?);
        Ok(Self { namespace: None, kind: None, limit, cursor })
    }

    /// Whether nothing can be of the wanted kind: every tool here belongs to an MCP server.
    pub fn is_of_another_kind(&self) -> bool {
        self.kind.as_deref().is_some_and(|kind| kind != "mcp")
    }
}

/// `describe_tool`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribeRequest {
    /// `namespace:name`.
    pub tool_id: String,
    /// How much to say.
    pub level: Level,
    /// Most examples.
    pub examples: usize,
}

impl DescribeRequest {
    pub fn decode(raw: Option<&[u8]>) -> Result<Self, BadArguments> {
        let known = ["tool_id", "detail_level", "examples_max"];
        let given = Arguments::read("describe_tool", raw, &known)?;
        let level = match given.text("detail_level")?.as_deref() {
            None => Level::Schema,
            Some("summary") => Level::Summary,
            Some("schema") => Level::Schema,
            Some("full") => Level::Full,
            Some(_) => {
                return Err(given.malformed("detail_level", "\"summary\", \"schema\" or \"full\""));
            }
        };
        let most = MAX_EXAMPLES as u64;
        let examples = given.whole("examples_max", (0, most))?.unwrap_or(most);
        Ok(Self { tool_id: given.needed("tool_id", WHICH)?, level, examples: examples as usize })
    }
}

/// `list_tool_examples`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExamplesRequest {
    /// `namespace:name`.
    pub tool_id: String,
    /// Most examples.
    pub max: usize,
}

impl ExamplesRequest {
    pub fn decode(raw: Option<&[u8]>) -> Result<Self, BadArguments> {
        let given = Arguments::read("list_tool_examples", raw, &["tool_id", "max"])?;
        let most = MAX_EXAMPLES as u64;
        let max = given.whole("max", (1, most))?.unwrap_or(most) as usize;
        Ok(Self { tool_id: given.needed("tool_id", WHICH)?, max })
    }
}

/// `run_tool`. Its arguments stay as they were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRequest<'a> {
    /// `namespace:name`.
    pub tool_id: String,
    /// An object, or a string that holds one; raw.
    pub args: Option<&'a [u8]>,
    /// Whether the answer was wanted piece by piece.
    pub stream: bool,
    /// Whether `backend_override` was given.
    pub has_override: bool,
    /// Whether the tool's definition is wanted beside the answer.
    pub include_tool: bool,
    /// Whether it is wanted which server answered.
    pub include_backend: bool,
    /// Whether the server's own result is wanted in any case.
    pub include_result: bool,
}

impl<'a> RunRequest<'a> {
    pub fn decode(raw: Option<&'a [u8]>) -> Result<Self, BadArguments> {
        let known = [
            "tool_id",
            "args",
            "stream",
            "include_tool",
            "include_backend",
            "include_mcp_result",
            "backend_override",
        ];
        let given = Arguments::read("run_tool", raw, &known)?;
        let on = |name| given.flag(name).map(|flag| flag == Some(true));
        Ok(Self {
            tool_id: given.needed("tool_id", WHICH)?,
            args: given.raw("args"),
            stream: on("stream")?,
            has_override: given.object("backend_override")?.is_some(),
            include_tool: on("include_tool")?,
            include_backend: on("include_backend")?,
            include_result: on("include_mcp_result")?,
        })
    }
}

/// One step of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepRequest<'a> {
    /// `namespace:name`.
    pub tool_id: String,
    /// An object in which references may stand; raw.
    pub args: Option<&'a [u8]>,
    /// Whether the result before it goes into `args.previous`.
    pub use_previous: bool,
    /// What later steps call it by.
    pub id: Option<String>,
}

/// `run_chain`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainRequest<'a> {
    /// The steps in order; at least one.
    pub steps: Vec<StepRequest<'a>>,
    /// Whether it is wanted which servers answered.
    pub include_backends: bool,
    /// Whether the tools' definitions are wanted.
    pub include_tools: bool,
    /// Time for all of it.
    pub timeout_ms: Option<u64>,
}

impl<'a> ChainRequest<'a> {
    pub fn decode(raw: Option<&'a [u8]>) -> Result<Self, BadArguments> {
        const TOOL: &str = "run_chain";
        let known = ["steps", "include_backends", "include_tools", "timeout_ms"];
        let given = Arguments::read(TOOL, raw, &known)?;
        let missing = || BadArguments::Missing {
            tool: TOOL,
            name: "steps".to_owned(),
            what: "a list of {\"tool_id\": …, \"args\": {…}}",
        };
        let list = given.raw("steps").ok_or_else(missing)?;
        if !list.starts_with(b"[") {
            return Err(given.malformed("steps", "a list of steps"));
        }
        let mut steps: Vec<StepRequest<'a>> = Vec::new();
        for (index, step) in object::elements(list).enumerate() {
            if index == MAX_STEPS {
                return Err(given.malformed("steps", format!("at most {MAX_STEPS} steps")));
            }
            let known = ["tool_id", "args", "use_previous", "id"];
            let given = Arguments::inside(TOOL, format!("steps[{index}]."), step, &known)?;
            let id = given.text("id")?;
            if id.as_ref().is_some_and(|id| steps.iter().any(|step| step.id.as_ref() == Some(id))) {
                return Err(given.malformed("id", "an id that no other step has"));
            }
            let use_previous = given.flag("use_previous")? == Some(true);
            if use_previous && index == 0 {
                return Err(given.malformed(
                    "use_previous",
                    "false or absent in the first step, which has none before it",
                ));
            }
            steps.push(StepRequest {
                tool_id: given.needed("tool_id", WHICH)?,
                args: given.object("args")?,
                use_previous,
                id,
            });
        }
        if steps.is_empty() {
            return Err(missing());
        }
        Ok(Self {
            steps,
            include_backends: given.flag("include_backends")?.unwrap_or(true),
            include_tools: given.flag("include_tools")?.unwrap_or(false),
            timeout_ms: given.at_least("timeout_ms", (1, LONGEST_MS))?,
        })
    }
}

/// `execute_code`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeRequest {
    /// As written, where it was.
    pub language: Option<String>,
    pub code: String,
    /// Time for all of it.
    pub timeout_ms: Option<u64>,
    /// Most calls.
    pub max_tool_calls: Option<u64>,
}

impl CodeRequest {
    pub fn decode(raw: Option<&[u8]>) -> Result<Self, BadArguments> {
        const TOOL: &str = "execute_code";
        let known = ["language", "code", "timeout_ms", "max_tool_calls"];
        let given = Arguments::read(TOOL, raw, &known)?;
        let code = match given.raw("code") {
            Some(raw) => object::text(raw).ok_or_else(|| given.malformed("code", "a string"))?,
            None => {
                return Err(BadArguments::Missing {
                    tool: TOOL,
                    name: "code".to_owned(),
                    what: "TypeScript or JavaScript, as a string",
                });
            }
        };
        Ok(Self {
            language: given.text("language")?,
            code: code.into_owned(),
            timeout_ms: given.at_least("timeout_ms", (1, LONGEST_MS))?,
            max_tool_calls: given.at_least("max_tool_calls", (0, u64::from(u32::MAX)))?,
        })
    }

    /// Whether it is a language that runs here.
    pub fn is_known_language(&self) -> bool {
        self.language.as_deref().is_none_or(|language| {
            ["typescript", "ts", "javascript", "js"]
                .iter()
                .any(|known| language.eq_ignore_ascii_case(known))
        })
    }
}

fn limit(given: &Arguments<'_>) -> Result<usize, BadArguments> {
    Ok(asked_limit(given)?.unwrap_or(DEFAULT_LIMIT))
}

fn asked_limit(given: &Arguments<'_>) -> Result<Option<usize>, BadArguments> {
    let asked = given.whole("limit", (1, MAX_LIMIT as u64))?;
    Ok(asked.map(|asked| asked as usize))
}
