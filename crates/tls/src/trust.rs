//! Open connections end when the certificate at their other end is no longer valid (TS12).

use crate::verify::{Callers, DialledNode};
use rustls::client::danger::ServerCertVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// Which check a certificate has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// A caller of the client port.
    Client,
    /// A node that has dialled this one.
    Peer,
    /// A node that this one has dialled.
    Dialled,
}

/// The checks of certificates with the current authorities.
#[derive(Debug)]
pub(crate) struct Checks {
    pub(crate) clients: Callers,
    pub(crate) peers: Callers,
    pub(crate) dialled: DialledNode,
}

/// What an open connection relies on.
#[derive(Debug)]
pub(crate) struct Trust {
    passed: Passed,
    chain: Vec<CertificateDer<'static>>,
    /// End of the validity of the certificate, in seconds since 1970.
    not_after: u64,
    ended: AtomicBool,
    reader: Mutex<Option<Waker>>,
}

impl Trust {
    fn is_valid(&self, checks: &Checks, now: UnixTime) -> bool {
        let Some((certificate, intermediates)) = self.chain.split_first() else { return true };
        let by = |callers: &Callers| callers.verify_client_cert(certificate, intermediates, now).is_ok();
        match self.passed {
            Passed::Client => by(&checks.clients),
            Passed::Peer => by(&checks.peers),
            Passed::Dialled => {
                let name = ServerName::try_from("node.invalid").expect("a valid name");
                checks.dialled.verify_server_cert(certificate, intermediates, &name, &[], now).is_ok()
            }
        }
    }

    fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(reader) = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take() {
            reader.wake();
        }
    }

    fn check(&self) -> io::Result<()> {
        if self.ended.load(Ordering::SeqCst) {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the certificate of the peer is not valid any more",
            ));
        }
        Ok(())
    }
}

/// All open connections with a certificate at their other end.
#[derive(Debug, Default)]
pub(crate) struct Trusted(Mutex<Vec<Weak<Trust>>>);

impl Trusted {
    /// Adds a connection. Its certificate was checked a moment ago.
    pub(crate) fn add(&self, stream: TlsStream<TcpStream>, passed: Passed) -> Watched {
        let chain: Vec<_> = stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
        let not_after = chain.first().and_then(|first| crate::material::not_after(first));
        let trust = not_after.map(|not_after| {
            let (ended, reader) = (AtomicBool::new(false), Mutex::default());
            let trust = Arc::new(Trust { passed, chain, not_after, ended, reader });
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // The list is cleaned when it has grown to twice its use, so that a connection costs little.
            if all.len() == all.capacity() {
                all.retain(|trust| trust.strong_count() > 0);
                let room = all.len().max(16);
                all.reserve(room);
            }
            all.push(Arc::downgrade(&trust));
            trust
        });
        Watched { stream, trust }
    }

    /// Ends the connections whose certificates have expired. With `checks`, the authorities have changed, and all certificates
    /// are checked again. Returns the number of connections that end.
    pub(crate) fn end_invalid(&self, now: UnixTime, checks: Option<&Checks>) -> usize {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|trust| trust.strong_count() > 0);
        let open: Vec<Arc<Trust>> = all.iter().filter_map(Weak::upgrade).collect();
        drop(all);
        let over = |trust: &&Arc<Trust>| {
            trust.not_after < now.as_secs() || checks.is_some_and(|checks| !trust.is_valid(checks, now))
        };
        let ended = open.iter().filter(over).filter(|trust| !trust.ended.load(Ordering::SeqCst));
        ended.inspect(|trust| trust.end()).count()
    }
}

/// A TLS connection that ends with the certificate at its other end.
#[derive(Debug)]
pub struct Watched {
    stream: TlsStream<TcpStream>,
    /// `None` without a certificate.
    trust: Option<Arc<Trust>>,
}

impl Watched {
    pub(crate) fn unwatched(stream: TlsStream<TcpStream>) -> Watched {
        Watched { stream, trust: None }
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        self.stream.get_ref().0
    }

    fn check(&self) -> io::Result<()> {
        self.trust.as_ref().map_or(Ok(()), |trust| trust.check())
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if read.is_pending()
            && let Some(trust) = &self.trust
        {
            let mut reader = trust.reader.lock().unwrap_or_else(PoisonError::into_inner);
            if reader.as_ref().is_none_or(|waker| !waker.will_wake(context.waker())) {
                *reader = Some(context.waker().clone());
            }
            drop(reader);
            // It may have ended before the waker was stored.
            trust.check()?;
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
