//! Recognises the peer port of a node, so that an error can name the mistake.

use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const TIMEOUT: Duration = Duration::from_secs(1);
const ANSWER_BYTES_MAX: u64 = 1_024;

/// Asks the node at this address (`host:port`) over HTTP/1.1 whether this is its peer port, or a client port that
/// requires TLS. Returns its answer, which says what to use instead, or `None` if it is neither or nobody answers.
///
/// The peer port answers with status 421. A client of HTTP/2 cannot read that answer and fails with an error that does
/// not help anybody.
pub async fn peer_port_answer(address: &str) -> Option<String> {
    let ask = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        let request = format!("GET / HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await.ok()?;
        parse(&answer)
    };
    tokio::time::timeout(TIMEOUT, ask).await.ok()?
}

/// The first line of the body, if this is the answer of a peer port.
fn parse(answer: &[u8]) -> Option<String> {
    let (head, body) = std::str::from_utf8(answer).ok()?.split_once("\r\n\r\n")?;
    let line = body.lines().next().filter(|line| !line.contains(char::is_control))?;
    let is_peer_port = head.starts_with("HTTP/1.1 421 ") && line.starts_with("this is the peer port");
    let requires_tls = head.starts_with("HTTP/1.1 400 ") && line.starts_with("this port requires TLS");
    (is_peer_port || requires_tls).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_of_a_peer_port_is_taken() {
        let answer = |status: &str, text: &str| format!("HTTP/1.1 {status}\r\nconnection: close\r\n\r\n{text}");
        let taken = |text: String| parse(text.as_bytes());
        let peer = "this is the peer port of a Convoke node; use its client port, n1:7700";
        assert_eq!(taken(answer("421 Misdirected Request", &format!("{peer}\n"))).as_deref(), Some(peer));
        let tls = "this port requires TLS: use https:// and the CA of the cluster (--ca)";
        assert_eq!(taken(answer("400 Bad Request", &format!("{tls}\n"))).as_deref(), Some(tls));
        assert_eq!(taken(answer("404 Not Found", peer)), None);
        assert_eq!(taken(answer("421 Misdirected Request", "another host")), None);
        assert_eq!(taken(answer("421 Misdirected Request", "this is the peer port\u{1b}[2J")), None);
        assert_eq!(parse(b"\0\0\0\x04\0\0\0\0\0"), None);
    }
}
