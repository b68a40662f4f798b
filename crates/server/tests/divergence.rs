//! Two nodes that have received the same writes and hold different records report it everywhere (D16).

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

mod support;

use convoke_testkit::{TestClient, eventually, member, meshed};
use support::Served;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Passes connections on to a node, and changes the records that it sends. Returns the address.
async fn damaging_proxy(target: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((inbound, _)) = listener.accept().await {
            let Ok(outbound) = TcpStream::connect(&target).await else { continue };
            let ((mut from, to), (answers, mut requests)) = (inbound.into_split(), outbound.into_split());
            tokio::spawn(async move { copy(&mut from, &mut requests).await });
            tokio::spawn(damage(answers, to));
        }
    });
    address
}

/// Replaces a value in every frame, with a correct checksum: as if the memory of the sender were damaged.
async fn damage(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> std::io::Result<()> {
    loop {
        let length = from.read_u32_le().await?;
        let _checksum = from.read_u32_le().await?;
        let mut frame = vec![0; length as usize];
        from.read_exact(&mut frame).await?;
        while let Some(at) = frame.windows(5).position(|text| text == b"right") {
            frame[at..at + 5].copy_from_slice(b"wrong");
        }
        to.write_u32_le(length).await?;
        to.write_u32_le(crc32c::crc32c(&frame)).await?;
        to.write_all(&frame).await?;
    }
}

async fn degraded(served: &Served) -> String {
    served.get("/api/v1/status").await.ok()["degraded"].to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_divergence_is_reported_by_both_nodes() {
    let first = Served::start("n0", &[], |_| {}, |_| {}).await;
    let seed = damaging_proxy(first.node.peer_address().to_owned()).await;
    let second = Served::start("n1", &[], |config| config.join = vec![seed], |_| {}).await;
    meshed([&first.node, &second.node].into_iter()).await;
    let nodes = [(&first, "n1"), (&second, "n0")];
    eventually("equal contents are compared", async || {
        let mut compared = true;
        for (served, _) in nodes {
            compared &= served.node.counters().await.unwrap().registry.contents_compared > 0;
        }
        compared
    })
    .await;

    let mut client = TestClient::attach(&first.node, "c", Vec::new()).await;
    let register = async |client: &mut TestClient, id: &str, value: &str| {
        let mut member = member(id, "s");
        member.spec.metadata.insert("v".to_owned(), value.to_owned());
        client.register(member).await.unwrap();
    };
    register(&mut client, "m", "right").await;
    eventually("the other node holds another record", async || {
        second.node.member("m").is_some_and(|member| member.metadata().get("v") == Some("wrong"))
    })
    .await;
    for (served, peer) in nodes {
        let reason = format!("the registry differs from that of {peer}");
        eventually("the status names the peer", async || degraded(served).await.contains(&reason)).await;
        let metrics = served.get("/metrics").await.body_text();
        for line in ["convoke_registry_diverged 1", "convoke_registry_divergences_total 1", "convoke_degraded 1"] {
            assert!(metrics.lines().any(|found| found == line), "{line} is missing in {metrics}");
        }
        let events = served.node.events_after(0);
        let event = events.iter().find(|event| event.what.to_string().contains(&reason.replace("of n", "of node n")));
        assert!(event.unwrap().what.is_warning());
    }

    // Other writes do not hide it. A new write of the record ends it.
    register(&mut client, "other", "value").await;
    eventually("it arrives", async || second.node.member("other").is_some()).await;
    assert!(degraded(&second).await.contains("differs"));
    let seq = client.next_seq();
    client.connection.unregister(client.session, seq, "m").await.unwrap();
    for (served, peer) in nodes {
        eventually("the status is clean", async || degraded(served).await == "[]").await;
        let ended = format!("the registry equals that of node {peer} again");
        assert!(served.node.events_after(0).iter().any(|event| event.what.to_string() == ended));
    }
}
