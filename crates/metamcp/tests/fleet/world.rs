//! A fleet on one machine: servers of NATS, gateways with a slow and fragile link to each of them, a balancer.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use metamcp_testkit::balancer::Balancer;
use metamcp_testkit::link::Link;
use metamcp_testkit::nats::{Nats, Options, get_within};
use metamcp_testkit::network::{Host, Network};
use metamcp_testkit::{Workspace, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::PATIENCE;
use crate::messages::KEYS;

/// The shortest there is, so that what a dead gateway owned is soon somebody else's.
const LEASE: &str = "3000";
/// What clients show.
pub(crate) const TOKEN: &str = "a-token-that-every-gateway-of-the-test-knows";
/// How long a gateway may take to say how it is.
const LOOK: Duration = Duration::from_secs(2);

/// One gateway, dead or alive.
pub(crate) struct Gateway {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pub(crate) host: Host,
    /// To each server of the bus.
    pub(crate) links: Vec<Link>,
    process: Option<Child>,
}

/// See the module.
pub(crate) struct World {
    // In the order in which they have to go.
    pub(crate) balancer: Balancer,
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) nats: Nats,
    pub(crate) workspace: Workspace,
    _bus_hosts: Vec<Host>,
    pub(crate) has_namespaces: bool,
}

impl World {
    /// So many gateways and servers of the bus, with the servers that the workspace has.
    pub(crate) fn start(
        mut network: Network,
        mut workspace: Workspace,
        gateways: usize,
        bus: usize,
    ) -> World {
        let bus_hosts: Vec<Host> = (0..bus).map(|_| network.host().unwrap()).collect();
        let places = bus_hosts.iter().map(Host::place).collect();
        let nats = Nats::start(Options { places, ..Options::default() }).unwrap();
        std::fs::write(workspace.file("key"), KEYS[0]).unwrap();
        std::fs::write(workspace.file("tokens"), format!("{TOKEN} name=tests\n")).unwrap();
        for file in ["key", "tokens"] {
            let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(workspace.file(file), private).unwrap();
        }
        workspace.setting("pool", json!({"cooldownMs": 200}));
        let hub = network.hub();
        let gateways: Vec<Gateway> = (0..gateways)
            .map(|number| {
                let host = network.host().unwrap();
                let link = |server| Link::start((hub, 0).into(), nats.address(server)).unwrap();
                Gateway {
                    name: format!("g{number}"),
                    address: host.socket(),
                    host,
                    links: (0..bus).map(link).collect(),
                    process: None,
                }
            })
            .collect();
        let addresses: Vec<SocketAddr> = gateways.iter().map(|one| one.address).collect();
        let balancer = Balancer::start((hub, 0).into(), &addresses).unwrap();
        workspace.write_config().unwrap();
        let has_namespaces = network.has_namespaces();
        let mut world =
            World { balancer, gateways, nats, workspace, _bus_hosts: bus_hosts, has_namespaces };
        // The first makes what all of them share.
        world.launch(0);
        world.is_ready(0);
        for number in 1..world.gateways.len() {
            world.launch(number);
        }
        world.all_are_ready();
        world
    }

    /// The address that clients are told.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.balancer.address())
    }

    /// Starts a gateway, or one more time.
    pub(crate) fn launch(&mut self, number: usize) {
        let command = self.command(number);
        self.launch_as(number, command);
    }

    pub(crate) fn launch_as(&mut self, number: usize, mut command: Command) {
        self.kill(number);
        let log = self.log_file(number);
        let log = File::options().create(true).append(true).open(log).unwrap();
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        self.gateways[number].process = Some(process.unwrap());
    }

    /// What starts a gateway.
    pub(crate) fn command(&self, number: usize) -> Command {
        let gateway = &self.gateways[number];
        let program = env!("CARGO_BIN_EXE_metamcp");
        let usual = self.workspace.command_as_it_is(Path::new(program));
        let mut command = match gateway.host.enter().split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program).env_clear().current_dir(self.workspace.project());
                command.envs(usual.get_envs().filter_map(|(name, value)| Some((name, value?))));
                command
            }
            None => usual,
        };
        let home = self.workspace.file(&format!("home-{}", gateway.name));
        std::fs::create_dir_all(&home).unwrap();
        let bus: Vec<String> =
            gateway.links.iter().map(|link| format!("nats://{}", link.address())).collect();
        let replicas = gateway.links.len().to_string();
        command.env("HOME", home);
        command.args(["--transport", "http", "--surface", "direct", "--code-profile", "off"]);
        command.args(["--host", &gateway.address.ip().to_string()]);
        command.args(["--port", &gateway.address.port().to_string()]);
        command.arg("--token-file").arg(self.workspace.file("tokens"));
        command.args(["--cluster", &bus.join(","), "--cluster-lease", LEASE]);
        command.args(["--cluster-replicas", &replicas, "--node-name", &gateway.name]);
        command.arg("--cluster-key").arg(self.workspace.file("key"));
        command
    }

    /// A command of an operator, who reaches the bus without detours.
    pub(crate) fn operator(&self, words: &[&str]) -> Command {
        let program = Path::new(env!("CARGO_BIN_EXE_metamcp"));
        let mut command = self.workspace.command_as_it_is(program);
        command.args(["--cluster", &self.nats.url(), "--node-name", "operator"]);
        command.arg("--cluster-key").arg(self.workspace.file("key"));
        command.arg("fleet").args(words);
        command
    }

    pub(crate) fn all_are_ready(&mut self) {
        for number in 0..self.gateways.len() {
            self.is_ready(number);
        }
        let all = || self.balancer.ready() == self.gateways.len();
        assert!(eventually(PATIENCE, all), "the balancer finds {} ready", self.balancer.ready());
    }

    /// Waits until a gateway says that it is. One that gave up because the bus did not answer is started again, as whatever
    /// starts gateways does.
    pub(crate) fn is_ready(&mut self, number: usize) {
        let is_ready = eventually(PATIENCE, || {
            self.start_again(number);
            self.readyz(number).is_some_and(|(status, _)| status == 200)
        });
        assert!(is_ready, "g{number} is not ready:\n{}", self.log(number));
    }

    /// Starts a gateway again that ended because it did not reach the bus when it started. True if it had ended otherwise.
    pub(crate) fn start_again(&mut self, number: usize) -> bool {
        if self.ended(number).is_none() {
            return false;
        }
        let log = self.log(number);
        let last = log.lines().last().unwrap_or_default();
        let is_bus = last.contains("the bus") || last.contains("cluster's bus");
        if is_bus {
            self.launch(number);
        }
        !is_bus
    }

    pub(crate) fn readyz(&self, number: usize) -> Option<(u16, Value)> {
        let (status, body) = get_within(self.gateways[number].address, "/readyz", LOOK).ok()?;
        Some((status, serde_json::from_str(&body).unwrap_or_default()))
    }

    pub(crate) fn kill(&mut self, number: usize) {
        if let Some(mut process) = self.gateways[number].process.take() {
            process.kill().ok();
            process.wait().ok();
        }
    }

    pub(crate) fn signal(&self, number: usize, signal: Signal) {
        if let Some(process) = &self.gateways[number].process {
            kill(Pid::from_raw(i32::try_from(process.id()).unwrap()), signal).ok();
        }
    }

    /// Whether a gateway has ended by itself, and how.
    pub(crate) fn ended(&mut self, number: usize) -> Option<ExitStatus> {
        self.gateways[number].process.as_mut()?.try_wait().unwrap()
    }

    /// Ends one as a rolling upgrade does, and waits for it.
    pub(crate) fn stop(&mut self, number: usize) -> ExitStatus {
        self.signal(number, Signal::SIGTERM);
        let mut status = None;
        let has_ended = eventually(PATIENCE, || {
            status = self.ended(number);
            status.is_some()
        });
        assert!(has_ended, "g{number} does not end:\n{}", self.log(number));
        self.gateways[number].process = None;
        status.unwrap()
    }

    pub(crate) fn log(&self, number: usize) -> String {
        std::fs::read_to_string(self.log_file(number)).unwrap_or_default()
    }

    fn log_file(&self, number: usize) -> std::path::PathBuf {
        self.workspace.file(&format!("{}.log", self.gateways[number].name))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for number in 0..self.gateways.len() {
            self.kill(number);
        }
    }
}
