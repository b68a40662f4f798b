//! `convoke members`, `convoke member`

use super::connect::{Node, call};
use crate::args::{Id, MembersArgs};
use crate::failure::Outcome;
use crate::output::{Palette, Style, Table, facts, print, print_json};
use convoke_proto::json::{Member, MemberList, Status};
use convoke_proto::v1;
use tonic::Response;

pub(crate) async fn members(arguments: &MembersArgs) -> Outcome {
    let filter = arguments.filter.clone().unwrap_or_default();
    let members = call(&arguments.inspect.connect, async |node| all(node, &filter).await).await?;
    if arguments.inspect.json {
        print_json(&MemberList { members, next_cursor: None })
    } else {
        print(&render(&members, Palette::of_stdout()))
    }
}

/// Page by page, from one node.
async fn all(node: Node, filter: &str) -> Result<Response<Vec<Member>>, tonic::Status> {
    let mut registry = node.registry();
    let (mut members, mut cursor) = (Vec::new(), String::new());
    loop {
        let request = v1::ListRequest { filter: filter.to_owned(), limit: 0, cursor };
        let page = registry.list(request).await?.into_inner();
        members.extend(page.members.into_iter().map(Member::from));
        cursor = page.next_cursor;
        if cursor.is_empty() {
            return Ok(Response::new(members));
        }
    }
}

pub(crate) async fn member(arguments: &Id) -> Outcome {
    let request = v1::GetRequest { id: arguments.id.clone() };
    let answer = call(&arguments.inspect.connect, async |node| node.registry().get(request.clone()).await).await?;
    let member = Member::from(answer.member.unwrap_or_default());
    if arguments.inspect.json { print_json(&member) } else { print(&render_one(&member, Palette::of_stdout())) }
}

/// How a member is, in a word.
pub(crate) fn state(member: &Member) -> (&'static str, Style) {
    match (member.status, member.drained) {
        (Status::Up, false) => ("up", Style::Good),
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

fn render_one(member: &Member, palette: Palette) -> String {
    let (word, style) = state(member);
    let mut lines = vec![
        ("Id", member.id.clone()),
        ("Service", member.service.clone()),
        ("Status", palette.paint(style, word)),
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
    lines.retain(|(_, value)| !value.is_empty());
    facts(&lines, palette)
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
            metadata: [("version".to_owned(), "v1".to_owned()), ("zone".to_owned(), "blue".to_owned())].into(),
            owner: Owner { node: "n1".into(), since: 1_700_000_000_001 },
            version: "3.1.0000abcd".into(),
            client: "shop".into(),
        }
    }

    #[test]
    fn members_in_a_table() {
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
    fn one_member_with_all_there_is() {
        golden!("golden/member.txt", &render_one(&member("orders-1", Status::Up, true), Palette::PLAIN));
    }
}
