//! A web site of one page, on this machine.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use anyhow::Result;

/// Serves `html` under every path but robots.txt, as long as the process lives; returns the address.
pub(crate) fn serve(html: &'static str) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = format!("http://{}/", listener.local_addr()?);
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            // A client that went away is none of ours.
            drop(respond(connection, html));
        }
    });
    Ok(address)
}

fn respond(connection: TcpStream, html: &str) -> Result<()> {
    let mut reader = BufReader::new(connection.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let (status, body) =
        if first.contains("robots.txt") { ("404 Not Found", "") } else { ("200 OK", html) };
    let length = body.len();
    let mut connection = connection;
    write!(
        connection,
        "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )?;
    Ok(())
}
