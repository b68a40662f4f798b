//! A way to a node that can be blocked, so that bytes wait as on a link that is too slow or swallows them, and whose
//! connections can be dropped.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Little is held on the way, so that the sender notices soon.
const BUFFER_BYTES: u32 = 16 * 1024;

/// Passes connections on to a target. Dropping it cuts them.
#[derive(Debug)]
pub struct Proxy {
    address: String,
    blocked: Arc<watch::Sender<bool>>,
    /// How often all connections were dropped.
    drops: Arc<watch::Sender<u64>>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// Starts passing connections on to this address.
    ///
    /// # Panics
    /// If there is no free port.
    pub async fn start(target: &str) -> Self {
        let target: SocketAddr = target.parse().expect("an address of a node in this process");
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(BUFFER_BYTES).expect("a socket has a buffer");
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
        let address = socket.local_addr().expect("a bound socket has an address").to_string();
        let listener = socket.listen(16).expect("a bound socket listens");
        let blocked = Arc::new(watch::Sender::new(false));
        let mut tasks = JoinSet::new();
        let gate = blocked.clone();
        let drops = Arc::new(watch::Sender::new(0));
        let dropping = drops.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let outward = TcpSocket::new_v4().expect("a socket");
                outward.set_recv_buffer_size(BUFFER_BYTES).expect("a socket has a buffer");
                let Ok(onward) = outward.connect(target).await else { continue };
                let ((read, write), (onward_read, onward_write)) = (stream.into_split(), onward.into_split());
                let (gate, mut dropped) = (gate.clone(), dropping.subscribe());
                connections.spawn(async move {
                    tokio::select! {
                        ((), ()) = async { tokio::join!(
                            pass(read, onward_write, gate.subscribe()),
                            pass(onward_read, write, gate.subscribe()),
                        ) } => {}
                        _ = dropped.changed() => {}
                    }
                });
            }
        });
        Proxy { address, blocked, drops, _tasks: tasks }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Holds everything back, or lets it flow again.
    pub fn block(&self, blocked: bool) {
        self.blocked.send_replace(blocked);
    }

    /// Closes all connections there are; new ones are passed on.
    pub fn drop_connections(&self) {
        self.drops.send_modify(|drops| *drops += 1);
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut blocked: watch::Receiver<bool>) {
    let mut buffer = vec![0; BUFFER_BYTES as usize];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if blocked.wait_for(|blocked| !blocked).await.is_err() || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}
