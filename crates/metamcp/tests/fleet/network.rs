//! The network that the other tests run in.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use metamcp_testkit::eventually;
use metamcp_testkit::nats::{Nats, Options};
use metamcp_testkit::network::{Entered, Host, enter};

use crate::PATIENCE;

#[test]
fn hosts_have_addresses_of_their_own_and_cables() {
    let mut network = match enter("network::hosts_have_addresses_of_their_own_and_cables").unwrap()
    {
        Entered::Here(network) => network,
        Entered::Elsewhere(has_passed) => return assert!(has_passed, "see above"),
    };
    let hosts = [(); 3].map(|()| network.host().unwrap());
    let places = hosts.iter().map(Host::place).collect();
    let nats = Nats::start(Options { places, ..Options::default() }).unwrap();
    if !network.has_namespaces() {
        return;
    }
    assert_eq!(hosts[2].address.to_string(), "10.77.0.3");
    assert_eq!(nats.url(), "nats://10.77.0.1:4222,nats://10.77.0.2:4222,nats://10.77.0.3:4222");
    // A program there reaches us, by its own address.
    let listener = TcpListener::bind((network.hub(), 0)).unwrap();
    let (enter, port) = (hosts[0].enter(), listener.local_addr().unwrap().port());
    let script = format!("exec 3<>/dev/tcp/{}/{port}; echo hello >&3", network.hub());
    let mut said = Command::new(&enter[0]);
    let mut child = said.args(&enter[1..]).args(["bash", "-c", &script]).spawn().unwrap();
    let (mut socket, from) = listener.accept().unwrap();
    assert_eq!(from.ip(), hosts[0].address);
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello\n");
    child.wait().unwrap();
    // Without its cable a leader loses its office, and is back when it has it again.
    let leader = nats.leader().unwrap();
    hosts[leader].pull_out().unwrap();
    let limit = Duration::from_millis(300);
    assert!(TcpStream::connect_timeout(&nats.address(leader), limit).is_err());
    hosts[leader].plug_in().unwrap();
    assert!(eventually(PATIENCE, || nats.leader().is_some()), "{}", nats.log());
    let mut one = TcpStream::connect(nats.address(leader)).unwrap();
    one.write_all(b"PING\r\n").unwrap();
}
