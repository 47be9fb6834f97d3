//! Real servers of NATS, alone or as a cluster, with JetStream in a temporary folder.
//! Owns: their processes, ended by id, their files, their addresses.  Never: speaks NATS.
//! In: how many, where, accounts, certificates, limits.  Out: the URL for clients, who leads, what they log.
//! Tests: `metamcp/tests/fleet/bus.rs`, which are left out where nothing is installed.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::patience::eventually;

/// However busy the machine is, a server that is not ready after this long does not start.
const PATIENCE: Duration = Duration::from_mins(1);

/// How long a page may take.
const ANSWER: Duration = Duration::from_secs(5);

/// A status page has a few kilobytes.
const LONGEST_PAGE: u64 = 4 << 20;

/// Below the ports that systems give out by themselves.
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 12_000;

/// How the servers are to be; [`Options::default`] is one of them, open to everybody on this machine.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where each is. Empty: one, on a loopback address.
    pub places: Vec<Place>,
    /// Lines of the configuration of NATS, such as `authorization {…}` or `accounts {…}`.
    pub security: String,
    /// What clients have to speak to the servers with.
    pub tls: Option<Tls>,
    /// The longest message, in bytes; the servers' own default is a mebibyte.
    pub max_payload: Option<usize>,
    /// How much JetStream may store, in bytes.
    pub max_store: Option<u64>,
}

impl Options {
    /// So many on loopback addresses.
    pub fn cluster(servers: usize) -> Options {
        Options { places: (0..servers).map(|_| Place::loopback()).collect(), ..Options::default() }
    }
}

/// Where one server listens.
#[derive(Clone, Debug)]
pub struct Place {
    pub address: Ipv4Addr,
    /// The first of three: for clients, for its status, for the other servers.
    pub port: u16,
    /// What starts it there, such as `nsenter --net=…`; empty for this network.
    pub enter: Vec<String>,
}

impl Place {
    /// A loopback address that only this process uses, and ports that nothing else gives out.
    pub fn loopback() -> Place {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let port = FIRST_PORT + 3 * NEXT.fetch_add(1, Ordering::Relaxed) % PORTS;
        Place { address: own_loopback(), port, enter: Vec::new() }
    }

    fn at(&self, which: u16) -> SocketAddr {
        (self.address, self.port + which).into()
    }
}

/// The address of this process in 127.64.0.0/10: two tests at once then never want one port. A process id on Linux has
/// at most 22 bits.
pub fn own_loopback() -> Ipv4Addr {
    if cfg!(target_os = "linux") {
        Ipv4Addr::from_bits(0x7f40_0000 | (std::process::id() & 0x3f_ffff))
    } else {
        Ipv4Addr::LOCALHOST
    }
}

/// Files in PEM.
#[derive(Clone, Debug)]
pub struct Tls {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Who signs the certificates of clients; without it clients need none.
    pub client_authority: Option<PathBuf>,
}

/// The servers; killed on drop.
#[derive(Debug)]
pub struct Nats {
    folder: TempDir,
    options: Options,
    servers: Vec<Option<Child>>,
}

impl Nats {
    /// One server on a loopback address, open to everybody on this machine.
    pub fn alone() -> Result<Nats> {
        Nats::start(Options::default())
    }

    /// Starts them, and waits until each has JetStream and all have one leader.
    pub fn start(mut options: Options) -> Result<Nats> {
        if options.places.is_empty() {
            options.places.push(Place::loopback());
        }
        let folder = tempfile::Builder::new().prefix("metamcp-nats-").tempdir()?;
        let servers = options.places.iter().map(|_| None).collect();
        let mut nats = Nats { folder, options, servers };
        for number in 0..nats.servers.len() {
            nats.launch(number)?;
        }
        nats.wait_until_ready()?;
        Ok(nats)
    }

    /// What clients are told: all of them, separated by commas.
    pub fn url(&self) -> String {
        (0..self.servers.len()).map(|number| self.url_of(number)).collect::<Vec<_>>().join(",")
    }

    pub fn url_of(&self, number: usize) -> String {
        let scheme = if self.options.tls.is_some() { "tls" } else { "nats" };
        format!("{scheme}://{}", self.address(number))
    }

    /// Where clients reach one.
    pub fn address(&self, number: usize) -> SocketAddr {
        self.options.places[number].at(0)
    }

    /// The process of one; `None` after it was killed.
    pub fn pid(&self, number: usize) -> Option<u32> {
        self.servers[number].as_ref().map(Child::id)
    }

    /// How many there are, dead ones included.
    pub fn count(&self) -> usize {
        self.servers.len()
    }

    /// kill -9.
    pub fn kill(&mut self, number: usize) {
        if let Some(mut child) = self.servers[number].take() {
            child.kill().ok();
            child.wait().ok();
        }
    }

    /// Stops or continues one, with SIGSTOP and SIGCONT.
    pub fn signal(&self, number: usize, signal: Signal) -> Result<()> {
        let pid = self.pid(number).context("it is dead")?;
        Ok(kill(Pid::from_raw(i32::try_from(pid)?), signal)?)
    }

    /// Starts one that was killed, with what it had stored, or without. Whether it is ready is another question.
    pub fn restart(&mut self, number: usize, forgets: bool) -> Result<()> {
        self.kill(number);
        if forgets {
            fs::remove_dir_all(self.store(number))?;
        }
        self.launch(number)
    }

    /// Waits until those that live have JetStream and all of them name one leader.
    pub fn wait_until_ready(&self) -> Result<()> {
        let is_ready = eventually(PATIENCE, || self.is_ready());
        ensure!(is_ready, "the bus does not start:\n{}", self.log());
        Ok(())
    }

    /// Who leads JetStream's cluster, if the servers that live agree on it.
    pub fn leader(&self) -> Option<usize> {
        let mut leader = None;
        for number in self.alive() {
            let (_, page) = self.page(number, "/jsz").ok()?;
            let page: Value = serde_json::from_str(&page).ok()?;
            let name = page["meta_cluster"]["leader"].as_str()?;
            let said = (0..self.servers.len()).find(|&other| server_name(other) == name)?;
            if *leader.get_or_insert(said) != said {
                return None;
            }
        }
        leader
    }

    /// Everything that the servers wrote, for a test that fails.
    pub fn log(&self) -> String {
        let logs = (0..self.servers.len())
            .map(|number| fs::read_to_string(self.file(number, "log")).unwrap_or_default());
        logs.collect::<Vec<_>>().join("\n")
    }

    /// A status page of NATS, such as `/varz`.
    pub fn status(&self, number: usize, page: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.page(number, page)?.1)?)
    }

    fn alive(&self) -> impl Iterator<Item = usize> {
        (0..self.servers.len()).filter(|&number| self.servers[number].is_some())
    }

    fn is_ready(&self) -> bool {
        let is_healthy =
            |number| self.page(number, "/healthz").is_ok_and(|(status, _)| status == 200);
        self.alive().all(is_healthy) && (self.servers.len() == 1 || self.leader().is_some())
    }

    fn launch(&mut self, number: usize) -> Result<()> {
        let config = self.file(number, "conf");
        fs::write(&config, self.config(number))?;
        let program = program()?;
        let enter = &self.options.places[number].enter;
        let mut command = match enter.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
            None => Command::new(program),
        };
        let log = File::options().create(true).append(true).open(self.file(number, "log"))?;
        command.arg("--config").arg(config).current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.servers[number] = Some(command.spawn().context("starting nats-server")?);
        Ok(())
    }

    fn config(&self, number: usize) -> String {
        let Options { places, security, tls, max_payload, max_store } = &self.options;
        let place = &places[number];
        let store = self.store(number);
        let mut said = format!(
            "server_name: {}\nlisten: \"{}\"\nhttp: \"{}\"\n",
            server_name(number),
            place.at(0),
            place.at(1),
        );
        said.push_str(&format!(
            "jetstream {{ store_dir: \"{}\", max_file_store: {}, max_memory_store: 67108864 }}\n",
            store.display(),
            max_store.unwrap_or(256 << 20),
        ));
        if let Some(bytes) = max_payload {
            said.push_str(&format!("max_payload: {bytes}\n"));
        }
        if places.len() > 1 {
            let routes: Vec<String> =
                places.iter().map(|place| format!("\"nats-route://{}\"", place.at(2))).collect();
            said.push_str(&format!(
                "cluster {{ name: fleet, listen: \"{}\", routes: [{}] }}\n",
                place.at(2),
                routes.join(", ")
            ));
        }
        if let Some(Tls { certificate, key, client_authority }) = tls {
            let verified = client_authority.as_ref().map_or_else(String::new, |authority| {
                format!(", ca_file: \"{}\", verify: true", authority.display())
            });
            said.push_str(&format!(
                "tls {{ cert_file: \"{}\", key_file: \"{}\"{verified} }}\n",
                certificate.display(),
                key.display()
            ));
        }
        said + security
    }

    fn store(&self, number: usize) -> PathBuf {
        self.file(number, "store")
    }

    fn file(&self, number: usize, ending: &str) -> PathBuf {
        self.folder.path().join(format!("{}.{ending}", server_name(number)))
    }

    fn page(&self, number: usize, path: &str) -> Result<(u16, String)> {
        get(self.options.places[number].at(1), path)
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        for number in 0..self.servers.len() {
            self.kill(number);
        }
    }
}

/// A page over HTTP, as short as it can be.
pub fn get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    page_within(address, path, ANSWER)
}

/// The same with another limit for each step.
pub fn page_within(address: SocketAddr, path: &str, limit: Duration) -> Result<(u16, String)> {
    let mut socket = TcpStream::connect_timeout(&address, limit)?;
    socket.set_read_timeout(Some(limit))?;
    write!(socket, "GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut text = Vec::new();
    socket.take(LONGEST_PAGE).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let (head, body) = text.split_once("\r\n\r\n").context("this is no response")?;
    let status = head.split(' ').nth(1).context("this is no status line")?.parse()?;
    Ok((status, body.to_owned()))
}

fn server_name(number: usize) -> String {
    format!("bus-{number}")
}

/// Where `cargo xtask test --only real` puts the program: in the build folder that this test is in.
fn program() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let names = ["real/nats/bin/nats-server", "real/nats/Scripts/nats-server.exe"];
    let mut found = own.ancestors().flat_map(|folder| names.map(|name| folder.join(name)));
    found.find(|path| Path::exists(path)).context(
        "nats-server is not installed in the build folder; run `cargo xtask test --only real`",
    )
}
