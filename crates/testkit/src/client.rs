//! A client that calls a node directly.

use convoke_core::Rejection;
use convoke_core::member::MemberSpec;
use convoke_core::node::{Attach, AttachMember, Attached, SessionId};
use convoke_core::version::Version;
use convoke_node::{ClientConnection, NodeHandle};

/// A minimal member.
pub fn member(id: &str, service: &str) -> AttachMember {
    AttachMember { spec: MemberSpec::new(id, service), takeover: false }
}

/// A client with one session. It sends no heartbeats by itself.
#[derive(Debug)]
pub struct TestClient {
    pub connection: ClientConnection,
    pub session: SessionId,
    pub claim: u64,
    pub client: String,
    seq: u64,
}

impl TestClient {
    /// Attaches with these members, raising the claim until the node accepts it.
    ///
    /// # Panics
    /// If the node rejects the attach.
    pub async fn attach(node: &NodeHandle, client: &str, members: Vec<AttachMember>) -> Self {
        let (this, attached) = Self::try_attach(node, client, 1, members).await.expect("the node accepts the client");
        assert!(attached.rejected.is_empty(), "{:?}", attached.rejected);
        this
    }

    /// Attaches with at least this claim.
    pub async fn try_attach(
        node: &NodeHandle,
        client: &str,
        claim: u64,
        members: Vec<AttachMember>,
    ) -> Result<(Self, Attached), Rejection> {
        let connection = node.connect()?;
        let mut attach = Attach { client: client.to_owned(), nonce: 7, claim, members, ..Attach::default() };
        let attached = loop {
            match connection.attach(attach.clone()).await {
                Err(Rejection { known: Some(known), .. }) if known >= attach.claim => attach.claim = known + 1,
                result => break result?,
            }
        };
        let (session, claim) = (attached.session, attach.claim);
        Ok((TestClient { connection, session, claim, client: client.to_owned(), seq: 0 }, attached))
    }

    /// Registers one more member.
    pub async fn register(&mut self, member: AttachMember) -> Result<Version, Rejection> {
        let seq = self.next_seq();
        self.connection.register(self.session, seq, member).await
    }

    /// The number of the next request.
    pub fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }
}
