//! A link between two programs that can be slow, and cut in one direction or both: a relay of TCP connections.
//! Owns: its listener, its connections, what is under way.  Never: looks at a byte, or loses one unless it is told to.
//! In: where to listen, where to, how the link is now.  Out: the bytes, in order, late or held back.
//! Tests: below.
//!
//! What is cut is held back, ends of connections included: nobody is told, as where a cable is pulled out.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// One read.
const CHUNK: usize = 64 * 1024;
/// Reads of one direction that are under way.
const UNDER_WAY: usize = 256;
/// How long the other end may take to be reached.
const CONNECTING: Duration = Duration::from_secs(5);

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From who connected.
    Up,
    /// To who connected.
    Down,
}

#[derive(Default)]
struct Condition {
    is_up_cut: bool,
    is_down_cut: bool,
    delay: Duration,
    is_over: bool,
    open: Vec<TcpStream>,
}

impl Condition {
    fn is_cut(&self, direction: Direction) -> bool {
        match direction {
            Direction::Up => self.is_up_cut,
            Direction::Down => self.is_down_cut,
        }
    }
}

#[derive(Default)]
struct Shared {
    condition: Mutex<Condition>,
    changed: Condvar,
}

impl Shared {
    fn condition(&self) -> MutexGuard<'_, Condition> {
        self.condition.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until then, and until this direction is whole; false if the link is no more.
    fn pass(&self, direction: Direction, due: Instant) -> bool {
        let mut condition = self.condition();
        loop {
            if condition.is_over {
                return false;
            }
            let left = due.saturating_duration_since(Instant::now());
            if !condition.is_cut(direction) && left.is_zero() {
                return true;
            }
            let wait = if left.is_zero() { CONNECTING } else { left };
            let woken = self.changed.wait_timeout(condition, wait);
            condition = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// See the module; its connections end when it is dropped.
pub struct Link {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Link {
    /// Listens there, on a free port if that is 0, and passes every connection on.
    pub fn start(listen: SocketAddr, to: SocketAddr) -> io::Result<Link> {
        let listener = TcpListener::bind(listen)?;
        let link = Link { address: listener.local_addr()?, shared: Arc::default() };
        let shared = Arc::clone(&link.shared);
        thread::spawn(move || {
            for socket in listener.incoming() {
                if shared.condition().is_over {
                    return;
                }
                let Ok(socket) = socket else { continue };
                let shared = Arc::clone(&shared);
                thread::spawn(move || connect(&shared, socket, to));
            }
        });
        Ok(link)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on nothing passes in this direction.
    pub fn cut(&self, direction: Direction) {
        self.change(|condition| match direction {
            Direction::Up => condition.is_up_cut = true,
            Direction::Down => condition.is_down_cut = true,
        });
    }

    /// Everything passes again, late if the link is slow; what was held back goes first.
    pub fn restore(&self) {
        self.change(|condition| {
            condition.is_up_cut = false;
            condition.is_down_cut = false;
        });
    }

    /// How long each byte takes from now on.
    pub fn slow(&self, delay: Duration) {
        self.change(|condition| condition.delay = delay);
    }

    /// Ends the connections there are, as a router does that forgot them.
    pub fn reset(&self) {
        for socket in self.shared.condition().open.drain(..) {
            socket.shutdown(Shutdown::Both).ok();
        }
    }

    fn change(&self, change: impl FnOnce(&mut Condition)) {
        change(&mut self.shared.condition());
        self.shared.changed.notify_all();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.change(|condition| condition.is_over = true);
        self.reset();
        // Wakes the accept loop.
        drop(TcpStream::connect(self.address));
    }
}

fn connect(shared: &Arc<Shared>, near: TcpStream, to: SocketAddr) {
    // A connection is made by bytes too.
    if !shared.pass(Direction::Up, Instant::now()) {
        return;
    }
    let Ok(far) = TcpStream::connect_timeout(&to, CONNECTING) else { return };
    for socket in [&near, &far] {
        socket.set_nodelay(true).ok();
    }
    let copies = [near.try_clone(), far.try_clone(), near.try_clone(), far.try_clone()];
    let [Ok(near_in), Ok(far_in), Ok(near_kept), Ok(far_kept)] = copies else { return };
    {
        let mut condition = shared.condition();
        condition.open.retain(|socket| socket.peer_addr().is_ok());
        condition.open.extend([near_kept, far_kept]);
    }
    for (direction, from, into) in [(Direction::Up, near_in, far), (Direction::Down, far_in, near)]
    {
        let (say, heard) = sync_channel(UNDER_WAY);
        let shared_in = Arc::clone(shared);
        thread::spawn(move || read(&shared_in, from, &say));
        let shared = Arc::clone(shared);
        thread::spawn(move || write(&shared, direction, &heard, into));
    }
}

fn read(shared: &Shared, mut from: TcpStream, say: &SyncSender<(Instant, Vec<u8>)>) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(length @ 1..) = from.read(&mut chunk) {
        let due = Instant::now() + shared.condition().delay;
        if say.send((due, chunk[..length].to_owned())).is_err() {
            return;
        }
    }
}

fn write(
    shared: &Shared,
    direction: Direction,
    heard: &Receiver<(Instant, Vec<u8>)>,
    mut into: TcpStream,
) {
    for (due, bytes) in heard {
        if !shared.pass(direction, due) || into.write_all(&bytes).is_err() {
            break;
        }
    }
    // The end of a connection travels as everything else does.
    shared.pass(direction, Instant::now());
    into.shutdown(Shutdown::Both).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However busy the machine is.
    const PATIENCE: Duration = Duration::from_secs(30);
    /// Long enough for what is not held back on an idle machine; a busy one only makes the check weaker.
    const HELD: Duration = Duration::from_millis(100);

    /// A link to a server that says everything again.
    fn link() -> (Link, TcpStream) {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = server.local_addr().unwrap();
        thread::spawn(move || {
            for socket in server.incoming().flatten() {
                let mut into = socket.try_clone().unwrap();
                thread::spawn(move || io::copy(&mut &socket, &mut into));
            }
        });
        let link = Link::start("127.0.0.1:0".parse().unwrap(), to).unwrap();
        let socket = TcpStream::connect(link.address()).unwrap();
        (link, socket)
    }

    fn heard(socket: &mut TcpStream, patience: Duration) -> io::Result<[u8; 4]> {
        socket.set_read_timeout(Some(patience))?;
        let mut said = [0; 4];
        socket.read_exact(&mut said).map(|()| said)
    }

    #[test]
    fn what_is_cut_is_held_back_in_that_direction_only_and_then_delivered() {
        for direction in [Direction::Up, Direction::Down] {
            let (link, mut socket) = link();
            socket.write_all(b"once").unwrap();
            assert_eq!(&heard(&mut socket, PATIENCE).unwrap(), b"once");
            link.cut(direction);
            socket.write_all(b"more").unwrap();
            assert!(heard(&mut socket, HELD).is_err());
            link.restore();
            assert_eq!(&heard(&mut socket, PATIENCE).unwrap(), b"more");
        }
    }

    #[test]
    fn a_slow_link_is_slow_and_a_reset_one_ends() {
        let (link, mut socket) = link();
        link.slow(Duration::from_millis(30));
        let began = Instant::now();
        socket.write_all(b"slow").unwrap();
        assert_eq!(&heard(&mut socket, PATIENCE).unwrap(), b"slow");
        assert!(began.elapsed() >= Duration::from_millis(60));
        link.reset();
        assert_eq!(heard(&mut socket, PATIENCE).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
