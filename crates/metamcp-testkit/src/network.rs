//! Hosts with addresses of their own on this machine: network namespaces behind a bridge, where the system allows it.
//! Owns: the namespaces, their cables.  Never: touches the network of the machine: all of it is inside one namespace.
//! In: how many hosts.  Out: their addresses, what starts a program on them, a cable that can be pulled out.
//! Tests: `metamcp/tests/fleet`.
//!
//! A test that wants hosts runs itself again inside a namespace, by [`enter`]. Where that is not possible it goes on where
//! it is, with hosts that share a loopback address, and says so.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, Result, bail, ensure};

use crate::nats::{Place, own_loopback};

/// Says to the second run of a test that it is inside.
const INSIDE: &str = "TESTKIT_NETWORK";
/// Where this process is, on the bridge.
const HUB: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 254);
/// Ports of programs on hosts that share an address.
const FIRST_PORT: u16 = 15_000;

/// What came of [`enter`].
pub enum Entered {
    /// Go on here.
    Here(Network),
    /// The test ran inside; this is whether it passed.
    Elsewhere(bool),
}

/// See the module.
pub struct Network {
    has_namespaces: bool,
    hosts: u8,
}

/// One host.
pub struct Host {
    pub address: Ipv4Addr,
    name: String,
    /// Keeps the namespace.
    holder: Option<Child>,
}

/// Runs the test of this name inside a network of its own, unless this is that run.
pub fn enter(test: &str) -> Result<Entered> {
    match std::env::var(INSIDE).as_deref() {
        Ok("namespaces") => return Ok(Entered::Here(Network::inside()?)),
        Ok("loopback") => return Ok(Entered::Here(Network { has_namespaces: false, hosts: 0 })),
        _ => {}
    }
    let ways: [&[&str]; 2] = [&["--net"], &["--user", "--map-root-user", "--net"]];
    let probe = "ip link add name br0 type bridge && ip link add name v0 type veth peer name v1";
    for way in ways {
        let tried = Command::new("unshare")
            .args(way)
            .args(["sh", "-c", probe])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if tried.is_ok_and(|status| status.success()) {
            let mut again = Command::new("unshare");
            again.args(way).arg(std::env::current_exe()?);
            again.args(["--exact", test, "--nocapture"]).env(INSIDE, "namespaces");
            let status = again.status().context("running the test inside a network")?;
            return Ok(Entered::Elsewhere(status.success()));
        }
    }
    writeln!(
        io::stderr(),
        "[network] no network namespaces here: all hosts of {test} share one loopback address"
    )?;
    Ok(Entered::Here(Network { has_namespaces: false, hosts: 0 }))
}

impl Network {
    fn inside() -> Result<Network> {
        ip("link set lo up")?;
        ip("link add name br0 type bridge")?;
        ip(&format!("addr add {HUB}/24 dev br0"))?;
        ip("link set br0 up")?;
        Ok(Network { has_namespaces: true, hosts: 0 })
    }

    pub fn has_namespaces(&self) -> bool {
        self.has_namespaces
    }

    /// Where the test itself is, as hosts see it.
    pub fn hub(&self) -> Ipv4Addr {
        if self.has_namespaces { HUB } else { own_loopback() }
    }

    /// Another host, with an address of its own if there are namespaces.
    pub fn host(&mut self) -> Result<Host> {
        self.hosts += 1;
        let name = format!("h{}", self.hosts);
        if !self.has_namespaces {
            return Ok(Host { address: own_loopback(), name, holder: None });
        }
        let address = Ipv4Addr::new(10, 77, 0, self.hosts);
        let holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo; exec sleep infinity"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("making a namespace")?;
        let mut host = Host { address, name, holder: Some(holder) };
        host.connect()?;
        Ok(host)
    }
}

impl Host {
    fn connect(&mut self) -> Result<()> {
        let holder = self.holder.as_mut().context("it has a namespace")?;
        // It says a line when it is inside.
        let mut said = [0];
        let stdout = holder.stdout.as_mut().context("its output is ours")?;
        io::Read::read_exact(stdout, &mut said)?;
        let (name, pid) = (&self.name, holder.id());
        ip(&format!("link add name {name} type veth peer name eth0 netns {pid}"))?;
        ip(&format!("link set {name} master br0 up"))?;
        self.ip("link set lo up")?;
        self.ip(&format!("addr add {}/24 dev eth0", self.address))?;
        self.ip("link set eth0 up")
    }

    fn ip(&self, arguments: &str) -> Result<()> {
        let enter = self.enter();
        let (first, rest) = enter.split_first().context("it has a namespace")?;
        run(Command::new(first).args(rest).arg("ip").args(arguments.split(' ')))
    }

    /// What a program starts with to run there; empty without namespaces.
    pub fn enter(&self) -> Vec<String> {
        let Some(holder) = &self.holder else { return Vec::new() };
        let namespace = format!("--net=/proc/{}/ns/net", holder.id());
        ["nsenter", &namespace, "--"].map(str::to_owned).to_vec()
    }

    /// An address for one program on it.
    pub fn socket(&self) -> SocketAddr {
        static NEXT: AtomicU16 = AtomicU16::new(FIRST_PORT);
        (self.address, NEXT.fetch_add(1, Ordering::Relaxed)).into()
    }

    /// Where a server of NATS can be on it.
    pub fn place(&self) -> Place {
        match self.holder {
            Some(_) => Place { address: self.address, port: 4222, enter: self.enter() },
            None => Place::loopback(),
        }
    }

    /// Pulls the cable out: nothing comes or goes, and nobody is told. Without namespaces there is none.
    pub fn pull_out(&self) -> Result<()> {
        ensure!(self.holder.is_some(), "hosts that share an address have no cables");
        ip(&format!("link set {} down", self.name))
    }

    pub fn plug_in(&self) -> Result<()> {
        ip(&format!("link set {} up", self.name))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(mut holder) = self.holder.take() {
            holder.kill().ok();
            holder.wait().ok();
        }
    }
}

fn ip(arguments: &str) -> Result<()> {
    run(Command::new("ip").args(arguments.split(' ')))
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().context("running ip")?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
