//! A gateway with a client in front of it and remote sites behind it.

use std::ops::Deref;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use metamcp_testkit::call_outcome::ErrorObject;
use metamcp_testkit::client::Reply;
use metamcp_testkit::site::honest::RemoteTransport;
use metamcp_testkit::site::{Exchange, HonestServer, ReceivedRequest, Site};
use metamcp_testkit::{CallOutcome, Client, Workspace};
use serde_json::{Value, json};

/// A longer wait means a hang.
pub(crate) const HUNG: Duration = Duration::from_mins(1);

/// A correct server, and the site it answers on.
pub(crate) struct Remote {
    pub(crate) honest: Arc<HonestServer>,
    pub(crate) site: Site,
}

impl Remote {
    /// A server without faults.
    pub(crate) fn honest(transport: RemoteTransport, streams: bool) -> Remote {
        Remote::with(transport, streams, |_, _, _| Ok(false))
    }

    /// A server whose requests go to `first`, and on to the correct implementation if that returns false.
    pub(crate) fn with(
        transport: RemoteTransport,
        streams: bool,
        first: impl Fn(&HonestServer, &ReceivedRequest, &mut Exchange<'_>) -> std::io::Result<bool>
        + Send
        + Sync
        + 'static,
    ) -> Remote {
        let honest = Arc::new(HonestServer::new(transport, streams));
        let inner = Arc::clone(&honest);
        let site = Site::start(Arc::new(move |request, exchange| {
            if first(&inner, request, exchange)? { Ok(()) } else { inner.answer(request, exchange) }
        }));
        Remote { honest, site: site.unwrap() }
    }

    /// How many requests with this JSON-RPC method arrived.
    pub(crate) fn count(&self, method: &str) -> usize {
        self.site.requests().iter().filter(|request| request.rpc() == method).count()
    }
}

/// A gateway and its client, after the handshake.
pub(crate) struct Gateway {
    client: Client,
    pub(crate) workspace: Workspace,
}

impl Deref for Gateway {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Gateway {
    /// In front of one server called `far`.
    pub(crate) fn to(url: &str) -> Gateway {
        Gateway::of(&json!({ "url": url }))
    }

    /// In front of one server called `far` with this config entry.
    pub(crate) fn of(entry: &Value) -> Gateway {
        let mut workspace = Workspace::new().unwrap();
        workspace.entry("far", entry.clone());
        Gateway::start(workspace)
    }

    pub(crate) fn start(workspace: Workspace) -> Gateway {
        Gateway::start_as(workspace, |_| {})
    }

    pub(crate) fn start_as(workspace: Workspace, change: impl FnOnce(&mut Command)) -> Gateway {
        let mut command = command(&workspace);
        change(&mut command);
        let client = Client::start(command).unwrap();
        client.initialize(&json!({}), HUNG).unwrap();
        Gateway { client, workspace }
    }

    /// For a client with these capabilities, which answers server requests.
    pub(crate) fn start_answering(
        workspace: Workspace,
        capabilities: &Value,
        answer: impl FnMut(&str, &Value) -> Reply + Send + 'static,
    ) -> Gateway {
        let client = Client::start_answering(command(&workspace), Box::new(answer)).unwrap();
        client.initialize(capabilities, HUNG).unwrap();
        Gateway { client, workspace }
    }

    /// Calls a tool of `far`.
    pub(crate) fn call(&self, tool: &str, arguments: &Value) -> CallOutcome {
        CallOutcome::of(&self.mcp_call_now("far", tool, arguments, HUNG).unwrap().value)
    }

    /// Calls `echo` and expects the same text back.
    pub(crate) fn echo(&self, text: &str) {
        let answer = self.mcp_call_now("far", "echo", &json!({ "text": text }), HUNG).unwrap();
        assert_eq!(answer.value["result"]["content"][0]["text"], text, "{}", answer.value);
    }

    /// Calls a tool and expects the gateway to return an error.
    pub(crate) fn refusal(&self, tool: &str, arguments: &Value) -> ErrorObject {
        match self.call(tool, arguments) {
            CallOutcome::GatewayError(error) => error,
            other => panic!("{tool} should have failed, and was {other}; {}", self.stderr()),
        }
    }

    /// Disconnects as a client does; the gateway must exit cleanly and have kept to the protocol.
    pub(crate) fn end(self) {
        drop(self.workspace_after_end());
    }

    /// The same, for a test that starts another gateway in the same home.
    pub(crate) fn workspace_after_end(mut self) -> Workspace {
        self.client.close_input();
        let status = self.client.wait_exit(HUNG).unwrap();
        assert!(status.success(), "{status}: {}", self.client.stderr());
        assert_eq!(self.client.violations(), [""; 0]);
        self.workspace
    }
}

/// The gateway's command in a workspace.
pub(crate) fn command(workspace: &Workspace) -> Command {
    let mut command = workspace.command(Path::new(env!("CARGO_BIN_EXE_metamcp"))).unwrap();
    command.env("METAMCP_HOME", workspace.home().join(".metamcp"));
    command
}
