//! Backup, restore, and recovery after the loss of a majority.

use crate::cluster::{Client, Disks, Host, agree, config, get, leader, together};
use convoke_log::machine::REVISION_JUMP;
use convoke_replica::{ChangeError, Edit, Role, offline};
use convoke_testkit::{TEST_TIMEOUT, eventually};
use std::io::Cursor;

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_restored_as_a_new_log() {
    let disks = Disks::new();
    let hosts = together(&disks, &["a", "b", "c"]).await;
    let mut client = Client::open(&hosts).await;
    for number in 0..30 {
        client.put(&hosts, &format!("k{number}"), "v").await;
    }
    let handle = hosts[leader(&hosts).await].handle();
    let backup = handle.backup().await.unwrap();
    let bytes: Vec<u8> = backup.frames().flatten().collect();
    let old = handle.status();

    let d = config(&disks, "d");
    let dir = disks.of("d");
    let report = offline::restore(&dir, "d", &d.address, &mut Cursor::new(&bytes)).await.unwrap();
    // Revisions jump ahead, so that no fence of the lost log is granted again (LO8).
    assert_eq!((report.keys, report.revision, report.applied), (30, 30 + REVISION_JUMP, backup.applied()));
    let again = offline::restore(&dir, "d", &d.address, &mut Cursor::new(&bytes)).await;
    assert!(matches!(again, Err(offline::OfflineError::NotEmpty { .. })));
    let cut = offline::restore(&disks.of("e"), "e", "x:1", &mut Cursor::new(&bytes[..bytes.len() - 1])).await;
    assert!(matches!(cut, Err(offline::OfflineError::Backup(_))));

    let restored = [Host::start(d).await];
    assert_eq!(get(&restored, "k29").await.as_deref(), Some("v"));
    let status = restored[0].handle().status();
    assert_ne!(status.log, old.log);
    assert_eq!(status.replica.map(|id| id.0), Some(4), "above every id of the old log");
    assert!(status.group.epoch > old.group.epoch, "no epoch is used twice");
    // The backup contains the session with its outcomes.
    assert_eq!(client.put(&restored, "more", "v").await, 31 + REVISION_JUMP);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recovered_survivor_starts_a_new_log_and_the_group_grows_again() {
    let disks = Disks::new();
    let mut hosts = together(&disks, &["a", "b", "c"]).await;
    let mut client = Client::open(&hosts).await;
    for number in 0..20 {
        client.put(&hosts, &format!("k{number}"), "v").await;
    }
    agree(&hosts).await;
    let old = hosts[0].handle().status();
    let survivor = hosts.remove(0);
    let mut gone = Vec::new();
    for host in hosts {
        gone.push(host.stop().await);
    }
    let in_use = offline::recover(&disks.of("a"), "a", &survivor.config.address).await;
    assert!(in_use.unwrap_err().to_string().contains("another process uses"));
    let config = survivor.stop().await;
    let report = offline::recover(&disks.of("a"), "a", &config.address).await.unwrap();
    assert_eq!((report.keys, report.replica.0), (20, 4));
    assert!(report.kept_in.is_some_and(|path| path.join("identity").exists()));
    let mut hosts = vec![Host::start(config).await];
    leader(&hosts).await;
    assert_ne!(hosts[0].handle().status().log, old.log);
    assert_eq!(get(&hosts, "k19").await.as_deref(), Some("v"));
    assert_eq!(client.put(&hosts, "new", "v").await, 21 + REVISION_JUMP);

    // An old replica returns unchanged: it is not part of the new log and cannot join it.
    let stale = Host::start(gone.remove(0)).await;
    let handle = hosts[0].handle();
    let address = stale.config.address.as_str().into();
    eventually("the founders are recorded", async || handle.status().settled).await;
    let add = Edit::Add { node: stale.node().into(), address };
    let rejected = handle.change(&add).await.unwrap_err();
    assert_eq!(rejected, ChangeError::HoldsReplica { node: stale.node().into(), of: "another" });
    assert_ne!(stale.handle().status().log, handle.status().log);
    // Without its directory it is an ordinary node.
    let config = stale.stop().await;
    std::fs::remove_dir_all(config.data_dir.as_ref().unwrap()).unwrap();
    hosts.push(Host::start(config).await);
    let number = handle.change(&add).await.unwrap();
    handle.settled(number, TEST_TIMEOUT).await.unwrap();
    agree(&hosts).await;
    eventually("it is a learner", async || hosts[1].handle().status().role == Role::Learner).await;
    let nothing = offline::recover(&disks.of("z"), "z", "x:1").await;
    assert!(matches!(nothing, Err(offline::OfflineError::NoLog { .. })));
}
