//! A running gateway in its own workspace, and the promises that hold whatever its servers do.

use std::ops::Deref;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use metamcp_testkit::call_outcome::ErrorObject;
use metamcp_testkit::census::Process;
use metamcp_testkit::client::Answerer;
use metamcp_testkit::{Answer, CallOutcome, Client, Workspace, eventually, programs};
use serde_json::{Value, json};

/// A longer wait means a hang. No working gateway takes this long, however busy the machine is.
pub(crate) const HUNG: Duration = Duration::from_mins(1);

/// A gateway and its client, after the handshake.
pub(crate) struct Gateway {
    // Declared first, so the gateway is gone before the workspace kills the remaining processes.
    pub(crate) client: Client,
    pub(crate) workspace: Workspace,
}

impl Deref for Gateway {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Gateway {
    /// Starts the gateway for a client without capabilities.
    pub(crate) fn start(workspace: Workspace) -> Gateway {
        let client = Client::start(command(&workspace)).unwrap();
        Self::greet(client, workspace, &json!({}))
    }

    /// Starts the gateway for a client with these capabilities, which answers server requests.
    pub(crate) fn start_answering(
        workspace: Workspace,
        capabilities: &Value,
        answerer: Answerer,
    ) -> Gateway {
        let client = Client::start_answering(command(&workspace), answerer).unwrap();
        Self::greet(client, workspace, capabilities)
    }

    /// The same, with more arguments.
    pub(crate) fn start_as_answering(
        workspace: Workspace,
        arguments: &[&str],
        capabilities: &Value,
        answerer: Answerer,
    ) -> Gateway {
        let mut command = command(&workspace);
        command.args(arguments);
        let client = Client::start_answering(command, answerer).unwrap();
        Self::greet(client, workspace, capabilities)
    }

    /// Starts the gateway without a handshake.
    pub(crate) fn start_silently(workspace: Workspace) -> Gateway {
        let client = Client::start(command(&workspace)).unwrap();
        Gateway { client, workspace }
    }

    fn greet(client: Client, workspace: Workspace, capabilities: &Value) -> Gateway {
        client.initialize(capabilities, HUNG).unwrap();
        Gateway { client, workspace }
    }

    /// Calls a tool of a server and waits for the response.
    pub(crate) fn call(&self, server: &str, tool: &str, args: &Value) -> Answer {
        self.mcp_call_now(server, tool, args, HUNG).unwrap()
    }

    /// Waits for the response to a request.
    pub(crate) fn answer(&self, id: u64) -> Answer {
        self.wait(id, HUNG).unwrap()
    }

    /// The outcome of a call.
    pub(crate) fn outcome(&self, server: &str, tool: &str, args: &Value) -> CallOutcome {
        CallOutcome::of(&self.call(server, tool, args).value)
    }

    /// The gateway's error for a call.
    pub(crate) fn refusal(&self, server: &str, tool: &str, args: &Value) -> ErrorObject {
        match self.outcome(server, tool, args) {
            CallOutcome::GatewayError(error) => error,
            other => panic!("{server}:{tool} should have been refused, and was {other}"),
        }
    }

    /// The one running child server.
    pub(crate) fn only_child(&self) -> Process {
        let mut found = Vec::new();
        eventually(HUNG, || {
            found = self.workspace.processes_of(&programs::chaos_child());
            found.len() == 1
        });
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    /// Everything sent before has been read once this is answered.
    pub(crate) fn ping(&self) {
        let answer = self.ask("ping", &json!({}), HUNG).unwrap();
        assert_eq!(answer.result(), Some(&json!({})));
    }

    /// Closes the connection as a client does, and checks what must hold at every end.
    pub(crate) fn end(mut self) -> Workspace {
        let complaints = end(&mut self.client, &self.workspace);
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
        self.workspace
    }
}

/// The gateway's command in a workspace.
pub(crate) fn command(workspace: &Workspace) -> Command {
    let mut command = workspace.command(Path::new(env!("CARGO_BIN_EXE_metamcp"))).unwrap();
    command.env("METAMCP_HOME", workspace.home().join(".metamcp"));
    command
}

/// Closes the gateway's input. It must exit cleanly, leave no process behind and have kept to the protocol.
pub(crate) fn end(client: &mut Client, workspace: &Workspace) -> Vec<String> {
    let mut complaints = Vec::new();
    client.close_input();
    match client.wait_exit(HUNG) {
        Ok(status) if status.success() => {}
        Ok(status) => complaints.push(format!("the gateway ended with {status}")),
        Err(error) => complaints.push(format!("the gateway did not end: {error:#}")),
    }
    for survivor in workspace.survivors(HUNG) {
        complaints.push(format!("survived the gateway: {survivor:?}"));
    }
    complaints.extend(client.violations());
    if !complaints.is_empty() {
        complaints.push(format!("stderr of the gateway: {}", client.stderr()));
    }
    complaints
}
