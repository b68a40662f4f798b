//! `convoke members`, `convoke member`

use crate::args::{Id, MembersArgs, filter_of};
use convoke_base::date_time;
use convoke_cli::output::{Palette, Style, Table, counted, facts, print, print_json};
use convoke_cli::{AttemptError, NodeChannel, Result, call, call_until};
use convoke_proto::json::{CheckStatus, Health, Maintenance, Member, MemberList, Status};
use convoke_proto::v1;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

pub(crate) async fn members(arguments: &MembersArgs) -> Result {
    let filter = filter_of(arguments.filter.as_deref(), arguments.service.as_deref());
    let connect = &arguments.inspect.connect;
    let listing = async |node: NodeChannel, deadline: Instant| {
        let registry = node.registry();
        let page = async |request| Ok(registry.clone().list(request).await?.into_inner());
        let request = v1::ListRequest { filter: filter.clone(), partial: arguments.partial, ..Default::default() };
        all(page, request, deadline, connect.timeout).await
    };
    let (members, complete) = call_until(connect, listing).await?;
    if arguments.inspect.json {
        print_json(&MemberList { members, next_cursor: None, complete })
    } else {
        if !complete {
            eprintln!("This node has reached none of its seeds: there may be more members.");
        }
        print(&render(&members, Palette::of_stdout()))
    }
}

/// Reads all pages from one node. Each page has the whole timeout, because the number of pages is unknown.
async fn all(
    page: impl AsyncFn(v1::ListRequest) -> Result<v1::ListResponse, tonic::Status>,
    mut request: v1::ListRequest,
    mut deadline: Instant,
    each: Duration,
) -> Result<(Vec<Member>, bool), AttemptError> {
    let (mut members, mut complete) = (Vec::new(), true);
    let mut pages = 0;
    loop {
        let page = match timeout_at(deadline, page(request.clone())).await {
            Ok(page) => page?,
            Err(_) if pages == 0 => return Err(AttemptError::Silent),
            Err(_) => return Err(AttemptError::Slow { received: counted(members.len() as u64, "member") }),
        };
        pages += 1;
        members.extend(page.members.into_iter().map(Member::from));
        complete &= page.complete;
        request.cursor = page.next_cursor;
        if request.cursor.is_empty() {
            return Ok((members, complete));
        }
        deadline = Instant::now() + each;
    }
}

pub(crate) async fn member(arguments: &Id) -> Result {
    let request = v1::GetRequest { id: arguments.id.clone() };
    let answer = call(&arguments.inspect.connect, async |node| node.registry().get(request.clone()).await).await?;
    let member = Member::from(answer.member.unwrap_or_default());
    if arguments.inspect.json { print_json(&member) } else { print(&render_one(&member, Palette::of_stdout())) }
}

/// Returns the status of a member in one word.
pub(crate) fn state(member: &Member) -> (&'static str, Style) {
    match (member.status, member.drained) {
        (Status::Up, false) => match member.health {
            Health::Passing => ("up", Style::Good),
            Health::Warning => ("up, warning", Style::Doubtful),
            Health::Critical => ("up, critical", Style::Bad),
        },
        (Status::Up, true) => ("up, drained", Style::Doubtful),
        (Status::Down, false) => ("down", Style::Bad),
        (Status::Down, true) => ("down, drained", Style::Bad),
        (Status::Left, _) => ("left", Style::Dim),
    }
}

fn render(members: &[Member], palette: Palette) -> String {
    let mut table = Table::new(&["ID", "SERVICE", "STATUS", "ADDRESS", "LOCALITY", "REVISION", "OWNER"]);
    for member in members {
        let (word, style) = state(member);
        let plain = |text: &str| (text.to_owned(), Style::Plain);
        table.row(vec![
            plain(&member.id),
            plain(&member.service),
            (word.to_owned(), style),
            plain(&member.address),
            plain(&member.locality),
            plain(&member.revision),
            plain(&member.owner.node),
        ]);
    }
    table.render(palette)
}

/// Reason and end of a drain.
fn maintenance(maintenance: &Maintenance) -> String {
    let end = maintenance.until.map(|until| format!("until {}", date_time(until)));
    let reason = Some(maintenance.reason.clone()).filter(|reason| !reason.is_empty());
    end.into_iter().chain(reason).collect::<Vec<String>>().join(", ")
}

fn render_one(member: &Member, palette: Palette) -> String {
    let (word, style) = state(member);
    let mut lines = vec![
        ("Id", member.id.clone()),
        ("Service", member.service.clone()),
        ("Status", palette.paint(style, word)),
        ("Maintenance", member.maintenance.as_ref().map_or_else(String::new, maintenance)),
        ("Address", member.address.clone()),
        ("Locality", member.locality.clone()),
        ("Revision", member.revision.clone()),
        ("Weight", member.weight.to_string()),
        ("Owner", member.owner.node.clone()),
        ("Client", member.client.clone()),
        ("Version", member.version.clone()),
    ];
    let pairs = |pairs: &std::collections::BTreeMap<String, String>| {
        pairs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
    };
    lines.push(("Endpoints", pairs(&member.endpoints)));
    lines.push(("Metadata", pairs(&member.metadata)));
    if !member.checks.is_empty() {
        lines.push(("Health", member.health.to_string()));
    }
    lines.extend(member.checks.iter().map(|check| ("Check", check_line(check))));
    lines.retain(|(_, value)| !value.is_empty());
    facts(&lines, palette)
}

/// A check in one line. The output may have several, and characters that control a terminal.
fn check_line(check: &CheckStatus) -> String {
    let output: String = check.output.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let parts = [check.id.as_str(), check.status.as_str(), check.kind.as_str(), check.target.as_str(), output.trim()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("  ")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use convoke_proto::json::Owner;
    use convoke_testkit::golden;

    pub(crate) fn member(id: &str, status: Status, drained: bool) -> Member {
        Member {
            id: id.into(),
            service: "orders".into(),
            locality: "aws.us-east-1.a".into(),
            created: 1_700_000_000_000,
            revision: "r7".into(),
            address: "10.0.0.1:80".into(),
            endpoints: [("grpc".to_owned(), "10.0.0.1:81".to_owned())].into(),
            weight: 2,
            status,
            drained,
            maintenance: None,
            metadata: [("version".to_owned(), "v1".to_owned()), ("zone".to_owned(), "blue".to_owned())].into(),
            owner: Owner { node: "n1".into(), since: 1_700_000_000_001 },
            version: "3.1.0000abcd".into(),
            client: "shop".into(),
            health: Default::default(),
            checks: Vec::new(),
        }
    }

    const HOUR: Duration = Duration::from_secs(3_600);

    fn page(next: &str) -> v1::ListResponse {
        let member = v1::Member { id: format!("before-{next}"), ..v1::Member::default() };
        v1::ListResponse { members: vec![member], next_cursor: next.to_owned(), complete: true }
    }

    #[tokio::test]
    async fn every_page_has_its_own_timeout() {
        // The first page meets its deadline; the second one arrives after it.
        let pages = async |request: v1::ListRequest| {
            if request.cursor.is_empty() {
                return Ok(page("2"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(page(""))
        };
        assert_eq!(all(pages, v1::ListRequest::default(), Instant::now(), HOUR).await.unwrap().0.len(), 2);
    }

    #[tokio::test]
    async fn a_list_that_stalls_is_not_reported_as_an_unreachable_node() {
        let stuck = async |request: v1::ListRequest| match request.cursor.as_str() {
            "" => Ok(page("2")),
            _ => std::future::pending().await,
        };
        let missed =
            all(stuck, v1::ListRequest::default(), Instant::now() + HOUR, Duration::from_millis(20)).await.unwrap_err();
        assert!(matches!(&missed, AttemptError::Slow { received } if received == "1 member"), "{missed:?}");
        let silent = async |_| std::future::pending().await;
        assert!(matches!(
            all(silent, v1::ListRequest::default(), Instant::now(), HOUR).await.unwrap_err(),
            AttemptError::Silent
        ));
    }

    #[test]
    fn members_are_rendered_as_a_table() {
        let bare = Member {
            address: String::new(),
            locality: String::new(),
            revision: String::new(),
            ..member("orders-4", Status::Up, false)
        };
        let members = [
            member("orders-1", Status::Up, false),
            member("orders-2", Status::Up, true),
            member("orders-3", Status::Down, false),
            bare,
        ];
        golden!("golden/members.txt", &render(&members, Palette::PLAIN));
        golden!("golden/members_none.txt", &render(&[], Palette::PLAIN));
    }

    #[test]
    fn one_member_is_rendered_with_all_attributes() {
        golden!("golden/member.txt", &render_one(&member("orders-1", Status::Up, true), Palette::PLAIN));
    }
}
