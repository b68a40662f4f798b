//! Registers a member and keeps it until Ctrl-C:
//! `cargo run -p convoke-client --example register -- orders-1 orders 10.0.0.1:8080`

use convoke_client::{Client, Error, MemberSpec, Update};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let id = args.next().unwrap_or_else(|| "orders-1".to_owned());
    let service = args.next().unwrap_or_else(|| "orders".to_owned());
    let address = args.next().unwrap_or_default();

    let client = Client::connect(["127.0.0.1:7700"]).await?;
    let me = client.register(MemberSpec::new(id, service).address(address).metadata("version", "v1")).await?;
    println!("{} is registered, version {}", me.id(), me.version());
    let version = me.update(Update::merge().set("ready", "yes")).await?;
    println!("{} is ready, version {version}", me.id());

    tokio::select! {
        error = me.lost() => println!("{} is no longer registered by this client: {error}", me.id()),
        _ = tokio::signal::ctrl_c() => println!("leaving"),
    }
    client.close().await?;
    Ok(())
}
