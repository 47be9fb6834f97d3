//! The terminal of `metamcp top`: taken over, drawn on, given back whatever happens.

use std::io::{self, BufWriter, Stdout, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

use super::draw;
use super::state::{Key, State};

/// Bytes of a frame that are written at once.
const FRAME: usize = 64 * 1024;

/// The terminal while the screen is ours.
pub(super) struct Tty {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
    /// A signal asked for the end.
    is_over: Arc<AtomicBool>,
    scroll: draw::Scroll,
}

impl Tty {
    pub(super) fn open() -> io::Result<Tty> {
        let is_over = Arc::new(AtomicBool::new(false));
        wait_for_signals(Arc::clone(&is_over))?;
        // Words about a panic belong on the screen that stays.
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
        enable_raw_mode()?;
        let backend = CrosstermBackend::new(BufWriter::with_capacity(FRAME, io::stdout()));
        let terminal = execute!(io::stdout(), EnterAlternateScreen)
            .and_then(|()| Terminal::new(backend))
            .and_then(|mut terminal| terminal.hide_cursor().map(|()| terminal));
        match terminal {
            Ok(terminal) => Ok(Tty { terminal, is_over, scroll: draw::Scroll::default() }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }

    pub(super) fn draw(&mut self, state: &State) -> io::Result<()> {
        let scroll = &mut self.scroll;
        self.terminal.draw(|frame| draw::draw(frame, state, scroll))?;
        self.terminal.backend_mut().flush()
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    // A terminal that is gone needs nothing any more.
    let _gone = disable_raw_mode();
    let _gone = execute!(io::stdout(), LeaveAlternateScreen, Show);
}

/// From now on the signals that would end the process only say so, whichever thread they hit, and the terminal is
/// restored first.
#[cfg(unix)]
fn wait_for_signals(is_over: Arc<AtomicBool>) -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let inside = runtime.enter();
    let (mut terminated, mut interrupted, mut hung_up) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
        signal(SignalKind::hangup())?,
    );
    drop(inside);
    let wait = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = terminated.recv() => {}
                _ = interrupted.recv() => {}
                _ = hung_up.recv() => {}
            }
        });
        is_over.store(true, Ordering::Relaxed);
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
    Ok(())
}

/// The same on Windows, where Ctrl-C is a key while the screen is shown.
#[cfg(windows)]
fn wait_for_signals(is_over: Arc<AtomicBool>) -> io::Result<()> {
    use tokio::signal::windows::{ctrl_break, ctrl_close};
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let inside = runtime.enter();
    let (mut broken, mut closed) = (ctrl_break()?, ctrl_close()?);
    drop(inside);
    let wait = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = broken.recv() => {}
                _ = closed.recv() => {}
            }
        });
        is_over.store(true, Ordering::Relaxed);
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
    Ok(())
}

/// What a key means; `None` for those that mean nothing.
pub(super) fn key(event: KeyEvent) -> Option<Key> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    if event.modifiers.contains(KeyModifiers::CONTROL) {
        return matches!(event.code, KeyCode::Char('c' | 'd')).then_some(Key::Interrupt);
    }
    Some(match event.code {
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::BackTab,
        KeyCode::Right => Key::Tab,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Tab => Key::Tab,
        KeyCode::BackTab => Key::BackTab,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    })
}
