//! Prints changes of members: `cargo run -p convoke-client --example watch -- 'service == "orders"'`

use convoke_client::{Client, Error, Event};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let client = Client::builder().seeds(["127.0.0.1:7700"]).build()?;
    let mut watch = client.watch(filter.as_str())?;
    while let Some(event) = watch.next().await {
        match event {
            Event::Snapshot(member) | Event::Registered(member) => println!("+ {} {}", member.id, member.status),
            Event::Updated(member) => println!("* {} {:?}", member.id, member.metadata),
            Event::StatusChanged(member) => println!("! {} {}", member.id, member.status),
            Event::OwnerChanged(member) => println!("> {} at {}", member.id, member.owner.node),
            Event::Unregistered { member, .. } => println!("- {}", member.id),
            Event::CaughtUp => println!("-- caught up"),
            Event::Reset(reason) => println!("-- reset: {reason:?}"),
        }
    }
    Ok(())
}
