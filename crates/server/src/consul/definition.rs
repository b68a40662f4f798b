//! Definitions of services in the bodies of registrations.

use super::check_definition::{check_definition, named};
use super::failure::Failure;
use convoke_consul::{Fields, Instance, Weights};
use convoke_core::member::Check;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A service as a body describes it.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) instance: Instance,
    pub(crate) checks: Vec<Check>,
}

/// Field of the name: `Name` at the agent, `Service` in the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameField {
    Name,
    Service,
}

/// Reads a service that is registered at `node`.
pub(crate) fn definition(mut fields: Fields, node: &str, name: NameField) -> Result<Definition, Failure> {
    let mut instance = Instance { node: node.to_owned(), ..Instance::default() };
    let mut checks = Vec::new();
    let read = (|| {
        instance.service = fields.text(if name == NameField::Name { "Name" } else { "Service" })?;
        instance.id = fields.text("ID")?;
        instance.tags = fields.texts("Tags")?;
        instance.meta = fields.map("Meta")?;
        instance.address = fields.text("Address")?;
        let port = fields.integer("Port")?.unwrap_or(0);
        instance.port = u16::try_from(port).map_err(|_| format!("Invalid port {port}: not between 0 and 65535"))?;
        instance.more.tag_override = fields.boolean("EnableTagOverride")?;
        instance.more.weights = weights(&mut fields)?;
        instance.more.tagged_addresses = tagged_addresses(&mut fields)?;
        checks.extend(fields.object("Check")?);
        checks.extend(fields.objects("Checks")?);
        for (field, what) in [
            ("Kind", "services of that kind"),
            ("Proxy", "service mesh (Connect)"),
            ("Connect", "service mesh (Connect)"),
        ] {
            fields.refuse(field, what)?;
        }
        fields.refuse("Namespace", "namespaces")?;
        // Sent by clients that copy what they read. Tokens of services have no meaning: the token of the request decides.
        for field in ["Token", "CreateIndex", "ModifyIndex", "ContentHash", "Datacenter"] {
            fields.ignore(field);
        }
        fields.end()
    })();
    read.map_err(Failure::bad)?;
    check(&mut instance, name)?;
    let checks = checks.into_iter().map(check_definition).collect::<Result<_, _>>()?;
    let checks = named(checks, &instance.service, &instance.id);
    Ok(Definition { instance, checks })
}

fn check(instance: &mut Instance, name: NameField) -> Result<(), Failure> {
    if instance.service.is_empty() {
        return Err(match name {
            NameField::Name => Failure::bad("Missing service name"),
            NameField::Service => Failure::server("Must provide service name with ID"),
        });
    }
    if instance.id.is_empty() {
        instance.id.clone_from(&instance.service);
    }
    let host = instance.address.trim_start_matches('[').trim_end_matches(']');
    if host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified()) {
        return Err(Failure::bad("Invalid service address"));
    }
    Ok(())
}

fn weights(fields: &mut Fields) -> Result<Option<Weights>, String> {
    let Some(mut given) = fields.object("Weights")? else { return Ok(None) };
    let mut share = |name: &str, least: i64| {
        let value = given.integer(name)?.unwrap_or(0);
        if value < least {
            let than = if least == 0 { "greater or equal than 0" } else { "greater than 0" };
            return Err(format!("Invalid Weights: {name} must be {than}"));
        }
        u16::try_from(value).map_err(|_| format!("Invalid Weights: {name} must be less or equal than 65535"))
    };
    let weights = Weights { passing: share("Passing", 1)?, warning: share("Warning", 0)? };
    given.end()?;
    Ok(Some(weights))
}

fn tagged_addresses(fields: &mut Fields) -> Result<BTreeMap<String, (String, u16)>, String> {
    let mut found = BTreeMap::new();
    for (name, mut address) in fields.named_objects("TaggedAddresses")? {
        let port = address.integer("Port")?.unwrap_or(0);
        let port = u16::try_from(port).map_err(|_| format!("Invalid port {port}: not between 0 and 65535"))?;
        found.insert(name, (address.text("Address")?, port));
        address.end()?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    fn read(body: &str) -> Result<Instance, (u16, String)> {
        let fields = Fields::parse(body.as_bytes()).unwrap();
        let read = definition(fields, "n1", NameField::Name).map(|definition| definition.instance);
        read.map_err(|failure| (failure.parts().0, failure.parts().1.to_owned()))
    }

    #[test]
    fn the_id_is_the_name_by_default() {
        let instance = read(r#"{"name":"web","port":80,"weights":{"passing":3}}"#).unwrap();
        assert_eq!((instance.id.as_str(), instance.port), ("web", 80));
        assert_eq!(instance.weights(), Weights { passing: 3, warning: 0 });
    }

    #[test]
    fn errors_are_those_of_consul() {
        for (body, status, text) in [
            (r#"{"Name":""}"#, 400, "Missing service name"),
            (r#"{"Name":"x","Unknown":1}"#, 400, "Request decode failed: json: unknown field \"Unknown\""),
            (r#"{"Name":"x","Weights":{"Passing":-1}}"#, 400, "Invalid Weights: Passing must be greater than 0"),
            (r#"{"Name":"x","Address":"0.0.0.0"}"#, 400, "Invalid service address"),
            (r#"{"Name":"x","Port":70000}"#, 400, "Invalid port 70000: not between 0 and 65535"),
        ] {
            assert_eq!(read(body).unwrap_err(), (status, text.to_owned()), "{body}");
        }
        let refused = read(r#"{"Name":"x","Connect":{"Native":true}}"#).unwrap_err();
        assert_eq!((refused.0, refused.1.contains("does not offer service mesh")), (400, true), "{}", refused.1);
    }
}
