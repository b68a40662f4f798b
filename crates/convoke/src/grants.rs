//! Decisions about a token without a node: `convoke token can` and `convoke explain --grant`.

use crate::access::read_token;
use crate::args::CanArgs;
use convoke_access::{Claims, GrantList, Mismatch, OWN_ISSUER, Principal, Resource, TokenText, Verb, inspect};
use convoke_base::date_time;
use convoke_cli::output::{print, print_json, unix_ms};
use convoke_cli::{CommandError, Result, current_context};
use serde::Serialize;
use std::path::Path;

#[derive(Serialize)]
struct Decision<'a> {
    allowed: bool,
    principal: String,
    verb: &'a str,
    resource: &'a str,
}

/// Parses a question: may a token do this?
fn asked<'a>(verb_text: &str, resource_text: &'a str) -> Result<(Verb, Resource<'a>)> {
    let verb: Verb = verb_text.parse().map_err(|()| {
        let known: Vec<&str> = Verb::ALL.iter().map(|verb| verb.as_str()).collect();
        CommandError::usage(format!("{verb_text:?} is not a verb: use one of {}", known.join(", ")))
    })?;
    let resource = Resource::parse(resource_text).filter(|resource| verb.kinds().contains(&resource.kind()));
    let resource = resource.ok_or_else(|| {
        let kinds: Vec<&str> = verb.kinds().iter().map(|kind| kind.as_str()).collect();
        let message = format!("{resource_text:?} is not a resource of {verb}: use KIND:NAME of {}", kinds.join(", "));
        CommandError::usage(message)
    })?;
    Ok((verb, resource))
}

/// Returns the claims and the principal of the token that a command would show.
fn own_token(token_file: Option<&Path>) -> Result<(Claims, Principal)> {
    let variable = || std::env::var("CONVOKE_TOKEN").ok().filter(|token| !token.trim().is_empty());
    let token = match (token_file, variable()) {
        (Some(file), _) => read_token(file)?,
        (None, Some(token)) => TokenText::new(&token),
        (None, None) => match current_context()?.and_then(|context| context.token_file) {
            Some(file) => read_token(&file)?,
            None => return Err(CommandError::usage("no token: set --token-file or CONVOKE_TOKEN, or use a context")),
        },
    };
    let (_, claims) = inspect(&token).map_err(|error| CommandError::usage(error.to_string()))?;
    if claims.iss != OWN_ISSUER {
        let message = format!("the token is of issuer {:?}: the policy file of the nodes decides about it", claims.iss);
        return Err(CommandError::usage(message));
    }
    let principal = Principal::new(format!("token/{}", claims.sub), GrantList::parse_known(&claims.grants), None);
    Ok((claims, principal))
}

pub(crate) fn can(arguments: &CanArgs) -> Result {
    let CanArgs { verb: verb_text, resource: resource_text, token_file, json } = arguments;
    let (verb, resource) = asked(verb_text, resource_text)?;
    let (_, principal) = own_token(token_file.as_deref())?;
    let decided = principal.check(verb, resource);
    if *json {
        let principal = principal.name().to_owned();
        print_json(&Decision { allowed: decided.is_ok(), principal, verb: verb_text, resource: resource_text })?;
        return decided.map_err(|_| CommandError::rejected(""));
    }
    decided.map_err(|denied| CommandError::rejected(denied.to_string()))?;
    print(&format!("yes: {} may {verb} {resource_text}\n", principal.name()))
}

#[derive(Serialize)]
struct Explained<'a> {
    #[serde(flatten)]
    decision: Decision<'a>,
    sentences: Vec<String>,
}

/// `convoke explain --grant`: what each grant of a token contributes to a decision.
pub(crate) fn explain(grant: &str, token_file: Option<&Path>, json: bool) -> Result {
    let Some((verb_text, resource_text)) = grant.split_once(' ') else {
        return Err(CommandError::usage(format!("{grant:?} is not `VERB RESOURCE`, for example `put key:config/a`")));
    };
    let (verb, resource) = asked(verb_text, resource_text)?;
    let (claims, principal) = own_token(token_file)?;
    let allowed = principal.grants().allows(verb, resource);
    let sentences = reasons(&claims, &principal, (verb, resource), unix_ms() / 1_000);
    if json {
        let principal = principal.name().to_owned();
        let decision = Decision { allowed, principal, verb: verb_text, resource: resource_text };
        return print_json(&Explained { decision, sentences });
    }
    let may = if allowed { "may" } else { "may not" };
    let sentences: String = sentences.iter().map(|sentence| format!("  - {sentence}\n")).collect();
    print(&format!("{} {may} {verb} {resource_text}\n\n{sentences}", principal.name()))
}

/// Sentences about the grants and the lifetime of a token.
fn reasons(claims: &Claims, principal: &Principal, asked: (Verb, Resource<'_>), now: u64) -> Vec<String> {
    let (verb, resource) = asked;
    let grants = &claims.grants;
    let mut sentences: Vec<String> = grants
        .iter()
        .map(|text| match GrantList::parse(&[text]).ok().and_then(|list| list.iter().next().cloned()) {
            None => format!("`{text}` is not a grant that this version knows."),
            Some(grant) => match grant.mismatch(verb, resource) {
                None => format!("`{text}` allows it."),
                Some(Mismatch::Verb) => format!("`{text}` is for another verb."),
                Some(Mismatch::Kind) => format!("`{text}` is for another kind of resource."),
                Some(Mismatch::Name) => format!("`{text}` does not cover {resource}."),
            },
        })
        .collect();
    if grants.is_empty() {
        sentences.push("The token has no grants.".to_owned());
    }
    if let Err(denied) = principal.check(verb, resource) {
        sentences.push(format!("The grant `{} {}` would allow it.", denied.verb, denied.resource));
    }
    if claims.exp <= now {
        let expired = date_time(claims.exp.saturating_mul(1_000));
        sentences.push(format!("The token expired at {expired}: nodes reject it."));
    }
    sentences.push("Nodes also check its signature, its cluster and revocations.".to_owned());
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_grant_has_a_reason() {
        let of = |grants: &[&str], asked: &str, now| {
            let grants: Vec<String> = grants.iter().map(|grant| (*grant).to_owned()).collect();
            let principal = Principal::new("token/app", GrantList::parse_known(&grants), None);
            let claims = Claims {
                iss: OWN_ISSUER.to_owned(),
                sub: "app".to_owned(),
                aud: Vec::new(),
                iat: 0,
                exp: 1_000,
                nbf: None,
                jti: String::new(),
                grants,
            };
            let (verb, resource) = asked.split_once(' ').unwrap();
            reasons(&claims, &principal, super::asked(verb, resource).unwrap(), now)
        };
        let others = "Nodes also check its signature, its cluster and revocations.";
        assert_eq!(
            of(&["read key:b/", "put service:a", "put lock:b", "put key:a/", "* service:*"], "put key:b/1", 1),
            [
                "`read key:b/` is for another verb.",
                "`put service:a` is not a grant that this version knows.",
                "`put lock:b` is not a grant that this version knows.",
                "`put key:a/` does not cover key:b/1.",
                "`* service:*` is for another kind of resource.",
                "The grant `put key:b/1` would allow it.",
                others,
            ]
        );
        assert_eq!(of(&["put key:b/"], "put key:b/1", 1), ["`put key:b/` allows it.", others]);
        let expired = "The token expired at 1970-01-01 00:16:40 UTC: nodes reject it.";
        assert_eq!(of(&["* *"], "backup log", 1_000), ["`* *` allows it.", expired, others]);
        assert_eq!(
            of(&[], "backup log", 1),
            ["The token has no grants.", "The grant `backup log` would allow it.", others]
        );
    }
}
