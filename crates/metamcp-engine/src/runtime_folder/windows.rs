//! Folders, locks and pipes as Windows has them.
//!
//! A named pipe can neither be renamed nor removed, and its name can be taken by anybody once its daemon is gone. So what
//! stands under the socket's name is a file that names the pipe of one daemon, in a folder of the user's profile; it is
//! placed, renamed and removed as a socket would be, and each daemon's pipe has a name that never was before.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::OwnedHandle;
use std::path::{Component, Path, PathBuf, Prefix};
use std::sync::OnceLock;
use std::time::Duration;

use interprocess::os::windows::named_pipe::PipeListenerOptions;
use interprocess::os::windows::named_pipe::pipe_mode::Bytes;
use interprocess::os::windows::named_pipe::tokio::{DuplexPipeStream, PipeListener};
use interprocess::os::windows::security_descriptor::SecurityDescriptor;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Runtime;
use winsafe::{ConvertSidToStringSid, HPROCESS, TokenInfo, co};

use super::{Candidate, NAME, Parent};
use crate::{env, files};

/// How the name of each daemon's pipe begins.
const PREFIX: &str = r"\\.\pipe\metamcp-";
/// Longest name of a pipe, which the system bounds at 256 characters.
const MAX_PIPE: u64 = 256;
/// What the system keeps of what the other side has not read yet.
const PIPE_BUFFER: u32 = 64 * 1024;
/// How soon a pipe is tried again whose daemon is about to take the next client.
const LOOK: Duration = Duration::from_millis(5);
/// All instances of the pipe are taken at this moment.
const ERROR_PIPE_BUSY: i32 = 231;
/// The pipe is read and written without waiting.
const FILE_FLAG_OVERLAPPED: u32 = 0x4000_0000;
/// The daemon may learn who we are, and not act as us.
const SECURITY_IDENTIFICATION: u32 = 0x0001_0000;

/// One end of a pipe.
pub type Pipe = DuplexPipeStream<Bytes>;

/// A lock that is ours until this is dropped, or until the process ends, however it ends.
#[derive(Debug)]
pub struct Held {
    _file: File,
}

/// The daemon's pipe. Must be made and used inside a runtime.
#[derive(Debug)]
pub struct Listener {
    pipes: PipeListener<Bytes, Bytes>,
}

impl Listener {
    pub async fn accept(&self) -> io::Result<Pipe> {
        self.pipes.accept().await
    }
}

/// A connection to the daemon, for who waits for it.
#[derive(Debug)]
pub struct Stream {
    pipe: Pipe,
    read_limit: Mutex<Option<Duration>>,
    write_limit: Mutex<Option<Duration>>,
}

impl Stream {
    #[expect(clippy::unnecessary_wraps, reason = "a socket's may fail")]
    pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        *self.read_limit.lock() = limit;
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "a socket's may fail")]
    pub fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        *self.write_limit.lock() = limit;
        Ok(())
    }

    /// Reads without a limit, beside other things that are waited for.
    pub async fn read_some(&self, into: &mut [u8]) -> io::Result<usize> {
        (&mut &self.pipe).read(into).await
    }

    /// The pipe itself, for who waits for more than it. Belongs to the runtime of `clients`.
    pub fn into_pipe(self) -> Pipe {
        self.pipe
    }
}

impl Read for &Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let limit = *self.read_limit.lock();
        within(limit, (&mut &self.pipe).read(into))
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let limit = *self.write_limit.lock();
        within(limit, (&mut &self.pipe).write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn within<T>(limit: Option<Duration>, act: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    clients()?.block_on(async {
        match limit {
            Some(limit) => {
                let ended = tokio::time::timeout(limit, act).await;
                ended.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            }
            None => act.await,
        }
    })
}

/// What drives the pipes of a process that is no daemon, and waits on their behalf.
pub fn clients() -> io::Result<&'static Runtime> {
    static CLIENTS: OnceLock<io::Result<Runtime>> = OnceLock::new();
    let made =
        CLIENTS.get_or_init(|| tokio::runtime::Builder::new_current_thread().enable_all().build());
    made.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))
}

pub(super) fn candidates(home: &Path, said: Option<&str>) -> Vec<Candidate> {
    if let Some(said) = said {
        // Whoever names a folder means that one: another would hide that it does not work.
        let parent = PathBuf::from(said);
        return vec![Candidate { folder: parent.join(NAME), parent, parent_is: Parent::Named }];
    }
    let in_home =
        Candidate { folder: home.join("run"), parent: home.to_owned(), parent_is: Parent::Named };
    let local = env::var("LOCALAPPDATA").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let local = local.map(|parent| Candidate {
        folder: parent.join(NAME).join("run"),
        parent,
        parent_is: Parent::Given,
    });
    // The home first: some clients keep variables from what they start, and all must find the same folder.
    [in_home].into_iter().chain(local).collect()
}

/// Creates what is missing and refuses what is not safe. Whom the system lets into a folder is inherited from the folder
/// around it, here the user's profile; whoever got in all the same finds a pipe that only this user can open.
pub(super) fn prepare(candidate: &Candidate) -> Result<(), String> {
    let Candidate { folder, parent, parent_is } = candidate;
    if !parent.is_absolute() {
        return Err(format!("{} is not an absolute path", parent.display()));
    }
    if *parent_is == Parent::Given && !parent.is_dir() {
        return Err(format!("{} is not there", parent.display()));
    }
    if is_remote(folder) {
        return Err(format!(
            "{} is on a network disk, where other machines would find it too",
            folder.display()
        ));
    }
    std::fs::create_dir_all(folder)
        .map_err(|error| format!("{} cannot be created: {error}", folder.display()))?;
    let found = std::fs::symlink_metadata(folder)
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    if found.file_type().is_symlink() {
        return Err(format!("{} is a symbolic link and is not followed", folder.display()));
    }
    if !found.is_dir() {
        return Err(format!("{} is not a folder", folder.display()));
    }
    Ok(())
}

/// Whether a path names another machine.
fn is_remote(folder: &Path) -> bool {
    matches!(folder.components().next(), Some(Component::Prefix(prefix))
        if matches!(prefix.kind(), Prefix::UNC(..) | Prefix::VerbatimUNC(..)))
}

/// Any path is short enough: the pipe's name does not depend on it.
pub(super) fn fitting(_folder: &Path) -> Result<(), String> {
    Ok(())
}

pub(super) fn try_lock(path: &Path) -> io::Result<Option<Held>> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(Held { _file: file })),
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => Err(error),
    }
}

pub(super) fn bind(temporary: &Path, name: &Path) -> io::Result<Listener> {
    let random = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
    let key = name.file_stem().unwrap_or_default().to_string_lossy();
    let pipe = format!("{PREFIX}{key}-{random:016x}");
    // Nobody but this user may open it, and nobody at all from another machine; and whoever has the name already is found
    // out, since this must be its first instance.
    let only_us = format!("D:P(A;;GA;;;{})", own_user()?);
    let only_us = widestring::U16CString::from_str(only_us).map_err(io::Error::other)?;
    let pipes = PipeListenerOptions::new()
        .path(Path::new(&pipe))
        .security_descriptor(Some(SecurityDescriptor::deserialize(&only_us)?))
        .input_buffer_size_hint(PIPE_BUFFER)
        .output_buffer_size_hint(PIPE_BUFFER)
        .create_tokio_duplex::<Bytes>()?;
    std::fs::write(temporary, pipe)?;
    // Connectors find the old name or the new one, never none.
    if let Err(error) = files::patiently(|| std::fs::rename(temporary, name)) {
        std::fs::remove_file(temporary).ok();
        return Err(error);
    }
    Ok(Listener { pipes })
}

pub(super) fn connect(path: &Path, limit: Duration) -> io::Result<Stream> {
    let mut pipe = String::new();
    let file = files::patiently(|| File::open(path))?;
    file.take(MAX_PIPE).read_to_string(&mut pipe)?;
    if !pipe.starts_with(PREFIX) {
        let words = format!("{} names no pipe of a daemon", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, words));
    }
    let mut waited = Duration::ZERO;
    let opened = loop {
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(FILE_FLAG_OVERLAPPED)
            .security_qos_flags(SECURITY_IDENTIFICATION)
            .open(&pipe);
        match opened {
            Ok(opened) => break opened,
            Err(error) if error.raw_os_error() == Some(ERROR_PIPE_BUSY) => {
                if waited >= limit {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                std::thread::sleep(LOOK);
                waited += LOOK;
            }
            // Its daemon ended without a word.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            Err(error) => return Err(error),
        }
    };
    let _inside = clients()?.enter();
    let pipe = Pipe::try_from(OwnedHandle::from(opened));
    let pipe = pipe.map_err(|error| {
        error.cause.unwrap_or_else(|| io::Error::other("what was opened is no pipe"))
    })?;
    if is_our_process(pipe.server_process_id()?)? {
        let (read_limit, write_limit) = (Mutex::new(None), Mutex::new(None));
        return Ok(Stream { pipe, read_limit, write_limit });
    }
    let words = format!("the pipe that {} names belongs to another user", path.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, words))
}

/// Whether the process at the other end is of this user.
pub fn peer_is_us(pipe: &Pipe) -> io::Result<bool> {
    is_our_process(pipe.client_process_id()?)
}

/// A process that we may not even look at is not ours.
fn is_our_process(pid: u32) -> io::Result<bool> {
    if pid == std::process::id() {
        return Ok(true);
    }
    match HPROCESS::OpenProcess(co::PROCESS::QUERY_LIMITED_INFORMATION, false, pid) {
        Ok(process) => Ok(user_of(&process).is_ok_and(|user| Some(user) == own_user().ok())),
        Err(co::ERROR::ACCESS_DENIED) => Ok(false),
        Err(error) => Err(system(error)),
    }
}

/// The security identifier of this user.
fn own_user() -> io::Result<String> {
    static OWN: OnceLock<String> = OnceLock::new();
    if let Some(own) = OWN.get() {
        return Ok(own.clone());
    }
    let own = user_of(&HPROCESS::GetCurrentProcess())?;
    Ok(OWN.get_or_init(|| own).clone())
}

fn user_of(process: &HPROCESS) -> io::Result<String> {
    let token = process.OpenProcessToken(co::TOKEN::QUERY).map_err(system)?;
    let found = token.GetTokenInformation(co::TOKEN_INFORMATION_CLASS::User).map_err(system)?;
    let TokenInfo::User(user) = found else {
        return Err(io::Error::other("the system does not say whose the process is"));
    };
    let sid = user.User.Sid().ok_or_else(|| io::Error::other("the process belongs to nobody"))?;
    ConvertSidToStringSid(sid).map_err(system)
}

fn system(error: co::ERROR) -> io::Error {
    io::Error::from_raw_os_error(error.raw().cast_signed())
}
