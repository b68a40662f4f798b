//! The relay in front of the peer port of a node, which applies the faults of the network.

use crate::network::{Direction, LinkFaults, RelayNetwork};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

/// Buffer per direction. It is small, so that the sender soon blocks when the receiver does not read.
const CHUNK_BYTES: usize = 16 * 1024;
/// Chunks in flight per direction. With a delay this bounds the throughput to 128 KiB per delay.
const CHUNKS_MAX: usize = 8;
const BACKLOG: u32 = 128;
/// Largest number of connections; the relay resets new ones beyond it.
const CONNECTIONS_MAX: usize = 1_024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Forwards connections to a node. Dropping it closes them.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    target: watch::Sender<Option<SocketAddr>>,
    _accepting: JoinSet<()>,
}

impl Relay {
    /// Listens at this address. Connections are reset until a target is set.
    pub fn listen(network: &RelayNetwork, host: IpAddr, address: SocketAddr) -> io::Result<Relay> {
        let socket = socket(address)?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let address = socket.local_addr()?;
        let listener = socket.listen(BACKLOG)?;
        let (target, targets) = watch::channel(None);
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, network.clone(), host, targets));
        Ok(Relay { address, target, _accepting: accepting })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the target of new connections; `None` resets them.
    pub fn lead_to(&self, target: Option<SocketAddr>) {
        self.target.send_replace(target);
    }
}

fn socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_recv_buffer_size(CHUNK_BYTES as u32)?;
    Ok(socket)
}

async fn accept(
    listener: TcpListener,
    network: RelayNetwork,
    host: IpAddr,
    target: watch::Receiver<Option<SocketAddr>>,
) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, source)) if connections.len() < CONNECTIONS_MAX => {
                let direction = Direction::new(source.ip(), host);
                connections.spawn(carry(stream, direction, network.subscribe(), target.clone()));
            }
            Ok((stream, _)) => reset(&stream),
            // For example, too many open files.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Forwards one connection.
async fn carry(
    mut stream: TcpStream,
    direction: Direction,
    mut faults: watch::Receiver<LinkFaults>,
    target: watch::Receiver<Option<SocketAddr>>,
) {
    let resets = faults.borrow().resets(direction);
    let Some(early) = until_connectable(&mut stream, direction, &mut faults).await else { return };
    let target = *target.borrow();
    let Some(mut onward) = connect(target, direction.from).await else { return reset(&stream) };
    let _ = (stream.set_nodelay(true), onward.set_nodelay(true));
    if onward.write_all(&early).await.is_err() {
        return reset(&stream);
    }
    let was_reset = {
        let ((read, write), (onward_read, onward_write)) = (stream.split(), onward.split());
        let mut all_faults = faults.clone();
        tokio::select! {
            ((), ()) = async { tokio::join!(
                pass(read, onward_write, Gate { direction, faults: faults.clone() }),
                pass(onward_read, write, Gate { direction: direction.back(), faults }),
            ) } => false,
            _ = all_faults.wait_for(|faults| faults.resets(direction) > resets && faults.lets_connect(direction)) => true,
        }
    };
    if was_reset {
        reset(&stream);
        reset(&onward);
    }
}

/// Waits until both directions are open. Bytes sent before wait here. `None` if the dialling node closed the connection.
async fn until_connectable(
    stream: &mut TcpStream,
    direction: Direction,
    faults: &mut watch::Receiver<LinkFaults>,
) -> Option<Vec<u8>> {
    let mut early = Vec::with_capacity(CHUNK_BYTES);
    loop {
        let room = early.len() < CHUNK_BYTES;
        tokio::select! {
            biased;
            open = faults.wait_for(|faults| faults.lets_connect(direction)) => return open.ok().map(|_| early),
            read = stream.read_buf(&mut early), if room => if !read.is_ok_and(|count| count > 0) {
                return None;
            },
        }
    }
}

/// Dials from the address of the dialling node, so that the target sees that address.
async fn connect(target: Option<SocketAddr>, source: IpAddr) -> Option<TcpStream> {
    let target = target?;
    let socket = socket(target).ok()?;
    if source.is_loopback() && target.ip().is_loopback() && source.is_ipv4() == target.is_ipv4() {
        socket.bind(SocketAddr::new(source, 0)).ok()?;
    }
    timeout(CONNECT_TIMEOUT, socket.connect(target)).await.ok()?.ok()
}

/// One direction of the network, used by one connection.
struct Gate {
    direction: Direction,
    faults: watch::Receiver<LinkFaults>,
}

impl Gate {
    fn delay(&self) -> Duration {
        self.faults.borrow().delay(self.direction)
    }

    async fn open(&mut self) {
        // The network outlives its relays.
        let _ = self.faults.wait_for(|faults| !faults.is_cut(self.direction)).await;
    }
}

/// Forwards bytes, and the end of the stream, while the direction is open.
fn pass(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, mut gate: Gate) -> impl Future<Output = ()> {
    let (chunks, mut due) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS_MAX);
    let faults = gate.faults.clone();
    let direction = gate.direction;
    let reading = async move {
        let delay = Gate { direction, faults };
        loop {
            let mut chunk = Vec::with_capacity(CHUNK_BYTES);
            match from.read_buf(&mut chunk).await {
                Ok(1..) if chunks.send((Instant::now() + delay.delay(), chunk)).await.is_ok() => {}
                _ => return,
            }
        }
    };
    let writing = async move {
        while let Some((at, chunk)) = due.recv().await {
            sleep_until(at).await;
            gate.open().await;
            if to.write_all(&chunk).await.is_err() {
                return;
            }
        }
        gate.open().await;
        let _ = to.shutdown().await;
    };
    async {
        tokio::join!(reading, writing);
    }
}

/// Resets the connection if the system allows it; otherwise the connection is closed.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}
