//! Enumerated settings: the allowed words are declared with the type, and everything else is derived from it.

use metamcp_types::strategy::Strategy;

/// One allowed word and what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// As written in the file, in a flag or in a variable.
    pub word: &'static str,
    /// Other ways of writing it.
    pub also: &'static [&'static str],
    /// One line for help, docs and schema.
    pub meaning: &'static str,
}

/// An enum whose variants are written as words.
macro_rules! words {
    ($(#[$outer:meta])* $name:ident { $($(#[$inner:meta])* $variant:ident = $word:literal $(or $also:literal)*: $meaning:literal,)+ }) => {
        $(#[$outer])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$inner])* #[doc = $meaning] $variant,)+
        }

        impl $name {
            /// Every word with its meaning.
            pub const WORDS: &'static [$crate::settings::Word] = &[$($crate::settings::Word {
                word: $word,
                also: &[$($also),*],
                meaning: $meaning,
            },)+];

            /// The variant written as `word`.
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// How the variant is written.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    };
}
pub(crate) use words;

words! {
    /// Whether a call that may have run can be sent a second time.
    Replay {
        Annotated = "annotated": "Send again only where the tool says that it reads only or that repeating is harmless, or the server's `retry` says so.",
        Never = "never": "Never send a call twice once it was sent, whatever servers and tools say.",
    }
}

words! {
    /// Which calls need a person's approval before they are sent.
    #[derive(Default, PartialOrd, Ord)]
    Approve {
        #[default]
        Never = "never": "None: your client asks for approval, or nobody does.",
        Destructive = "destructive": "Those that may destroy something: every tool that is neither declared read-only nor declared not destructive, and every tool whose name says that it deletes, removes, overwrites and the like.",
        Always = "always": "All.",
    }
}

/// The search strategies as words.
pub(super) const STRATEGIES: [Word; Strategy::ALL.len()] = {
    let mut words = [Word { word: "", also: &[], meaning: "" }; Strategy::ALL.len()];
    let mut at = 0;
    while at < words.len() {
        words[at].word = Strategy::ALL[at].name();
        words[at].meaning = Strategy::ALL[at].meaning();
        at += 1;
    }
    words
};

words! {
    /// How scripts are sandboxed.
    #[derive(Default)]
    CodeProfile {
        #[default]
        Standard = "standard": "A worker process of its own without files, network or other processes; on Linux.",
        Hardened = "hardened": "The same worker with the engine inside WebAssembly; for builds that have it.",
        Wasm = "wasm": "The engine inside WebAssembly, in a process with the limits its system has; for builds that have it.",
        Docker = "docker": "A container of the Docker engine on this machine.",
        Dev = "dev": "Like `standard` with engine traces in errors and longer limits.",
        Off = "off": "No code mode: `mcp_execute` is not listed, and rejected if called.",
    }
}

words! {
    /// Which tools a client is shown. A call may use every name, shown or not.
    #[derive(Default)]
    ToolSurface {
        #[default]
        Compact = "compact": "A few small tools in place of those of all servers: `mcp_discover`, `mcp_call`, `mcp_execute`, `mcp_provision`.",
        Full = "full": "The tools of metatools: `search_tools`, `describe_tool`, `run_tool`, `run_chain` and the rest.",
        Both = "both": "Both of these.",
        Direct = "direct": "The tools, resources and prompts of the servers as they are, for clients that search themselves.",
    }
}

words! {
    /// How clients reach the gateway.
    #[derive(Default)]
    Transport {
        #[default]
        Stdio = "stdio": "One client, on stdin and stdout; it starts the gateway and ends it.",
        Http = "http" or "streamable" or "streamable-http": "Streamable HTTP on `/mcp`, for any number of clients.",
        Sse = "sse": "The same, and for clients of 2024 the older pair `/sse` and `/messages`.",
    }
}

words! {
    /// How a server's process tree is prevented from outliving the gateway.
    Containment {
        Auto = "auto": "Namespaces where the system allows them, else the shim.",
        Namespace = "namespace": "A process namespace per server (Linux); a server is refused where that is not possible.",
        Shim = "shim": "A small parent process that ends the whole tree when the gateway is gone.",
    }
}

words! {
    /// Whether clients share one gateway process.
    #[derive(Default)]
    DaemonMode {
        #[default]
        Auto = "auto": "All clients of yours share one daemon, which the first of them starts; where none can be had, each serves by itself.",
        Off = "off": "Each client's process is a gateway with servers of its own.",
        Require = "require": "Like `auto`, but an error where no daemon can be had.",
    }
}

words! {
    /// How telemetry is sent.
    #[derive(Default)]
    OtlpProtocol {
        #[default]
        Auto = "auto": "As `OTEL_EXPORTER_OTLP_PROTOCOL` says; without it, gRPC to port 4317 and HTTP elsewhere.",
        Grpc = "grpc": "gRPC.",
        Http = "http/protobuf" or "http": "Protocol buffers over HTTP.",
    }
}

words! {
    /// Where the encryption key of stored OAuth tokens is.
    #[derive(Default)]
    TokenStore {
        #[default]
        Auto = "auto": "In the keyring of the system where there is one, else in a file that only you can read.",
        Keyring = "keyring": "In the keyring of the system; without one sign-ins are lost when the gateway ends.",
        File = "file": "In a file that only you can read, beside the tokens.",
    }
}

words! {
    /// How much is written to the log on stderr.
    LogLevel {
        Off = "off": "Nothing.",
        Error = "error": "Only what failed for good.",
        Warn = "warn": "Also what needs attention.",
        Info = "info": "Also servers that are ready, sign-ins and circuit breakers.",
        Debug = "debug": "Also every call, by name, without its arguments.",
        Trace = "trace": "Also connections becoming busy and idle.",
    }
}
