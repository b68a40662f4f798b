//! Picks members of a service, nearest first: `cargo run -p convoke-client --example pick -- orders aws.us-east-1.a`

use convoke_client::{Client, Error, Filter, LocalityPreferring};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let service = args.next().unwrap_or_else(|| "orders".to_owned());
    let locality = args.next().unwrap_or_default();

    let client = Client::connect(["127.0.0.1:7700"]).await?;
    let view = client.view(Filter::service(&service))?;
    view.wait_caught_up().await?;
    let picker = LocalityPreferring::new(view, locality);
    loop {
        match picker.pick() {
            Some(member) => println!("{} at {}", member.id, member.address),
            None => println!("no member of {service} is routable now"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
