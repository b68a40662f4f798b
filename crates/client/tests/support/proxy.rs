//! A TCP proxy that can lose its connections, or let them hang.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

pub struct Proxy {
    pub address: String,
    connections: Arc<Mutex<Vec<AbortHandle>>>,
    refusing: Arc<Mutex<bool>>,
    frozen: watch::Sender<bool>,
}

impl Proxy {
    pub async fn to(target: SocketAddr) -> Proxy {
        Proxy::at("127.0.0.1:0", target).await
    }

    pub async fn at(address: &str, target: SocketAddr) -> Proxy {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let connections: Arc<Mutex<Vec<AbortHandle>>> = Arc::default();
        let refusing: Arc<Mutex<bool>> = Arc::default();
        let (frozen, freeze) = watch::channel(false);
        let (held, refuses) = (connections.clone(), refusing.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *refuses.lock().unwrap() {
                    continue;
                }
                let task = tokio::spawn(forward(client, target, freeze.clone()));
                held.lock().unwrap().push(task.abort_handle());
            }
        });
        Proxy { address, connections, refusing, frozen }
    }

    /// Ends all connections.
    pub fn cut(&self) {
        self.connections.lock().unwrap().drain(..).for_each(|connection| connection.abort());
    }

    /// Ends all connections and takes no new ones.
    pub fn close(&self) {
        *self.refusing.lock().unwrap() = true;
        self.cut();
    }

    pub fn open(&self) {
        *self.refusing.lock().unwrap() = false;
    }

    /// Connections stay, nothing passes.
    pub fn freeze(&self, frozen: bool) {
        self.frozen.send_replace(frozen);
    }
}

async fn forward(client: TcpStream, target: SocketAddr, frozen: watch::Receiver<bool>) {
    let Ok(server) = TcpStream::connect(target).await else { return };
    let (client, server) = (Arc::new(client), Arc::new(server));
    tokio::select! {
        () = pump(client.clone(), server.clone(), frozen.clone()) => {}
        () = pump(server, client, frozen) => {}
    }
}

async fn pump(from: Arc<TcpStream>, to: Arc<TcpStream>, mut frozen: watch::Receiver<bool>) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        if from.readable().await.is_err() || frozen.wait_for(|frozen| !frozen).await.is_err() {
            return;
        }
        let read = match from.try_read(&mut buffer) {
            Ok(0) => return,
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => return,
        };
        let mut rest = &buffer[..read];
        while !rest.is_empty() {
            if to.writable().await.is_err() {
                return;
            }
            match to.try_write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }
}
