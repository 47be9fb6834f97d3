//! Network fault injection: a relay between two sockets that delays, slices, drops and resets.
//! Owns: the listener and its faults.  Never: interprets a byte.
//! In: a fault, and the target address.  Out: an address that stands in for the target.
//! Tests: through `metamcp/tests/remote`.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;

/// What happens to response bytes; requests are unaffected except by a black hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Each chunk is delayed by this many milliseconds.
    Latency(u64),
    /// Chunks of one byte.
    Slices,
    /// Every third connection is reset after this many bytes.
    Reset(usize),
    /// Requests are accepted and never answered.
    BlackHole,
    /// One byte per this many milliseconds.
    SlowLoris(u64),
}

/// See the module documentation.
pub struct Network {
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
}

impl Network {
    /// A network in front of `target`.
    pub fn before(target: SocketAddr, fault: Fault) -> Result<Network> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let stopped = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stopped);
        let last = AtomicU64::new(0);
        thread::spawn(move || {
            for near in listener.incoming() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(near), Ok(far)) = (near, TcpStream::connect(target)) else { continue };
                let number = last.fetch_add(1, Ordering::SeqCst);
                let fault = match fault {
                    Fault::Reset(_) if number % 3 != 2 => Fault::None,
                    other => other,
                };
                // Either side that closes ends its own pair of threads.
                drop(join(&near, &far, fault));
            }
        });
        Ok(Network { address, stopped })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
    }
}

fn join(near: &TcpStream, far: &TcpStream, fault: Fault) -> io::Result<()> {
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (asking, asked) = (near.try_clone()?, far.try_clone()?);
    let (answering, answered) = (far.try_clone()?, near.try_clone()?);
    thread::spawn(move || {
        let swallow = fault == Fault::BlackHole;
        drop(copy(
            asking,
            &asked,
            |piece| if swallow { Ok(()) } else { (&asked).write_all(piece) },
        ));
    });
    thread::spawn(move || {
        let mut passed = 0;
        drop(copy(answering, &answered, |piece| match fault {
            Fault::None | Fault::BlackHole => (&answered).write_all(piece),
            Fault::Latency(delay) => {
                thread::sleep(Duration::from_millis(delay));
                (&answered).write_all(piece)
            }
            Fault::Slices => piece.iter().try_for_each(|byte| (&answered).write_all(&[*byte])),
            Fault::SlowLoris(delay) => piece.iter().try_for_each(|byte| {
                thread::sleep(Duration::from_millis(delay));
                (&answered).write_all(&[*byte])
            }),
            Fault::Reset(after) => {
                let room = piece.len().min(after.saturating_sub(passed));
                passed += room;
                (&answered).write_all(&piece[..room])?;
                if passed >= after {
                    let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
                    let option = nix::sys::socket::sockopt::Linger;
                    nix::sys::socket::setsockopt(&answered, option, &linger)?;
                    return Err(io::ErrorKind::ConnectionReset.into());
                }
                Ok(())
            }
        }));
    });
    Ok(())
}

/// Copies until either side closes, then closes both.
fn copy(
    mut from: TcpStream,
    to: &TcpStream,
    mut pass: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut piece = [0; 16 * 1024];
    loop {
        let count = from.read(&mut piece).unwrap_or(0);
        if count == 0 || pass(&piece[..count]).is_err() {
            drop(from.shutdown(Shutdown::Both));
            return to.shutdown(Shutdown::Both);
        }
    }
}
