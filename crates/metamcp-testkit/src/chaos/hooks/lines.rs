//! Correct messages, framed wrongly.

use std::sync::Arc;
use std::time::Duration;

use crate::chaos::output::Piece;
use crate::chaos::server_state::{ServerState, die};

const BANNER: &str = "\u{1b}[1;32m  chaos-child v0.1  \u{1b}[0m\nlistening on stdio\n> npm warn deprecated left-pad@1.0.0\n{not json\n";

/// Noise that real servers print between messages, the worst of it valid JSON.
const NOISE: [&str; 5] = [
    "2026-01-01 12:00:00 INFO handling request\n",
    "{\"level\":30,\"time\":1767225600000,\"msg\":\"request\",\"id\":1,\"result\":\"ok\"}\n",
    "42\n",
    "[]\n",
    "\"ready\"\n",
];

pub(in crate::chaos) fn banner(server: &Arc<ServerState>, _: u64) {
    if server.output.write(&[Piece::new(BANNER)]).is_err() {
        die(1);
    }
}

pub(in crate::chaos) fn log_between(_: u64, pieces: Vec<Piece>) -> Vec<Piece> {
    NOISE.iter().map(|noise| Piece::new(*noise)).chain(pieces).collect()
}

pub(in crate::chaos) fn pause_inside(milliseconds: u64, pieces: Vec<Piece>) -> Vec<Piece> {
    pieces
        .into_iter()
        .flat_map(|mut piece| {
            let rest = piece.bytes.split_off(piece.bytes.len() / 2);
            let first = Piece { bytes: piece.bytes, pause: Duration::from_millis(milliseconds) };
            [first, Piece { bytes: rest, pause: piece.pause }]
        })
        .collect()
}

pub(in crate::chaos) fn byte_by_byte(_: u64, pieces: Vec<Piece>) -> Vec<Piece> {
    pieces
        .into_iter()
        .flat_map(|piece| piece.bytes.into_iter().map(|byte| Piece::new([byte])))
        .collect()
}

pub(in crate::chaos) fn odd_ends(_: u64, pieces: Vec<Piece>) -> Vec<Piece> {
    pieces
        .into_iter()
        .map(|piece| {
            let text = piece.bytes.strip_suffix(b"\n").unwrap_or(&piece.bytes);
            Piece {
                bytes: [&b"\r\n\n \t\r\n\xef\xbb\xbf"[..], text, b"\r\n\n"].concat(),
                pause: piece.pause,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(pieces: &[Piece]) -> Vec<u8> {
        pieces.iter().flat_map(|piece| piece.bytes.clone()).collect()
    }

    #[test]
    fn splitting_loses_no_byte() {
        let line = || vec![Piece::new("{\"a\":1}\n")];
        let halves = pause_inside(9, line());
        assert_eq!(halves.len(), 2);
        assert_eq!(halves[0].pause, Duration::from_millis(9));
        assert_eq!(joined(&halves), b"{\"a\":1}\n");
        let bytes = byte_by_byte(0, line());
        assert_eq!(bytes.len(), 8);
        assert_eq!(joined(&bytes), b"{\"a\":1}\n");
    }

    #[test]
    fn odd_ends_keep_the_message() {
        let bent = joined(&odd_ends(0, vec![Piece::new("{}\n")]));
        assert_eq!(bent, b"\r\n\n \t\r\n\xef\xbb\xbf{}\r\n\n");
    }
}
