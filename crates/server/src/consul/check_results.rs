//! Results of checks that a registrar finds itself and registers in the catalog. Each is a check with the longest ttl, whose
//! result is the one that was registered last.

use super::changes::Changes;
use super::failure::Failure;
use convoke_consul::{Fields, member_id};
use convoke_core::filter::Health;
use convoke_core::member::{Check, Probe};

/// The longest ttl that a check can have. Nobody chooses it for a check that an application reports.
const RESULT_TTL_MS: u64 = 7 * 24 * 3_600_000;
/// Fields that clients send because they copy what they read.
const IGNORED: [&str; 6] = ["ServiceName", "ServiceTags", "Type", "ExposedPort", "CreateIndex", "ModifyIndex"];

/// A result as a body describes it.
#[derive(Debug)]
pub(crate) struct RegisteredResult {
    /// Empty for a check of the node.
    pub(crate) service_id: String,
    check: Check,
    output: String,
}

/// Whether a check shows results that were registered.
pub(crate) fn is_result(check: &Check) -> bool {
    check.probe.ttl_ms() == Some(RESULT_TTL_MS)
}

/// Reads the results next to a node in the catalog.
pub(crate) fn check_results(fields: &mut Fields, node: &str) -> Result<Vec<RegisteredResult>, Failure> {
    let mut found: Vec<Fields> = fields.object("Check").map_err(Failure::bad)?.into_iter().collect();
    found.extend(fields.objects("Checks").map_err(Failure::bad)?);
    found.into_iter().map(|fields| result(fields, node)).collect()
}

fn result(mut fields: Fields, node: &str) -> Result<RegisteredResult, Failure> {
    let mut text = |name| fields.text(name).map_err(Failure::bad);
    let (at, id, name, status) = (text("Node")?, text("CheckID")?, text("Name")?, text("Status")?);
    let (notes, output, service_id) = (text("Notes")?, text("Output")?, text("ServiceID")?);
    fields.refuse("Definition", "definitions of checks in the catalog: use Service.Checks").map_err(Failure::bad)?;
    fields.refuse("Namespace", "namespaces").map_err(Failure::bad)?;
    for field in IGNORED {
        fields.ignore(field);
    }
    fields.end().map_err(Failure::bad)?;
    if !at.is_empty() && at != node {
        return Err(Failure::server(format!("check node {at:?} does not match node {node:?}")));
    }
    let id = if id.is_empty() { name.clone() } else { id };
    if id.is_empty() {
        let text = "failed inserting check: failed inserting check: object missing primary index on node";
        return Err(Failure::server(format!("{text} {node:?}")));
    }
    let initial = match status.as_str() {
        "" => Health::Critical,
        status => Health::parse(status).ok_or_else(|| Failure::bad(format!("Invalid check status: '{status}'")))?,
    };
    let mut check = Check { id, name, notes, initial, ..Check::default() };
    check.probe = Probe::Ttl { ttl_ms: RESULT_TTL_MS };
    check.set_defaults();
    Ok(RegisteredResult { service_id, check, output })
}

/// Returns the checks of one service, or of the node.
pub(crate) fn checks_for(results: &[RegisteredResult], service_id: &str) -> Vec<Check> {
    results.iter().filter(|result| result.service_id == service_id).map(|result| result.check.clone()).collect()
}

impl RegisteredResult {
    /// Reports the result. A check that is new, or that was registered with another status, begins with the status.
    pub(crate) async fn report(&self, changes: &Changes<'_>, node: &str) -> Result<(), Failure> {
        let RegisteredResult { service_id, check, output } = self;
        changes.report(member_id(node, service_id), &check.id, (check.initial, output)).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;
    use convoke_core::Limits;
    use convoke_core::member::MemberSpec;

    fn results(body: &str) -> Result<Vec<RegisteredResult>, (u16, String)> {
        let mut fields = Fields::parse(body.as_bytes()).unwrap();
        let found = check_results(&mut fields, "ext");
        found.map_err(|failure| (failure.parts().0, failure.parts().1.to_owned()))
    }

    #[test]
    fn results_are_checks_with_the_longest_ttl() {
        let body = r#"{"Check":{"CheckID":"c1","Name":"c one","Status":"passing","Output":"fine","Notes":"n",
            "Definition":{"HTTP":"","Interval":"0s","Header":null},"ServiceTags":[],"Type":""},
            "Checks":[{"Name":"c2","ServiceID":"db","Node":"ext"}]}"#;
        let found = results(body).unwrap();
        assert!(found.iter().all(|result| is_result(&result.check)));
        assert_eq!(
            (found[0].check.id.as_str(), found[0].check.initial, &*found[0].output),
            ("c1", Health::Passing, "fine")
        );
        assert_eq!(
            (found[1].check.id.as_str(), found[1].check.initial, &*found[1].service_id),
            ("c2", Health::Critical, "db")
        );
        assert_eq!(
            (checks_for(&found, "").len(), checks_for(&found, "db").len(), checks_for(&found, "x").len()),
            (1, 1, 0)
        );
        let spec = MemberSpec { checks: checks_for(&found, ""), ..MemberSpec::new("m", "s") };
        spec.check(&Limits::default()).unwrap();
        assert!(!is_result(&Check::new("a", Probe::Ttl { ttl_ms: RESULT_TTL_MS - 1 })));
    }

    #[test]
    fn errors_are_those_of_consul() {
        for (check, status, text) in [
            (r#"{"Status":"passing"}"#, 500, "object missing primary index on node \"ext\""),
            (r#"{"CheckID":"c","Node":"other"}"#, 500, "check node \"other\" does not match node \"ext\""),
            (r#"{"CheckID":"c","Bogus":1}"#, 400, "Request decode failed: json: unknown field \"Bogus\""),
            (r#"{"CheckID":"c","Status":"bad"}"#, 400, "Invalid check status: 'bad'"),
            (r#"{"CheckID":"c","Definition":{"HTTP":"http://x"}}"#, 400, "use Service.Checks"),
        ] {
            let (found, why) = results(&format!("{{\"Check\":{check}}}")).unwrap_err();
            assert!(found == status && why.contains(text), "{found} {why}");
        }
    }
}
