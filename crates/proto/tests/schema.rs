//! The schema only grows: every released field and value keeps its number and type.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use prost::Message;
use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorSet};

const RELEASED: &str = include_str!("schema.txt");

#[test]
fn nothing_released_has_changed() {
    let present = lines();
    let missing: Vec<&str> = RELEASED.lines().filter(|line| !present.iter().any(|p| p == line)).collect();
    assert!(missing.is_empty(), "removed or changed:\n{}", missing.join("\n"));
    let new: Vec<&String> = present.iter().filter(|line| !RELEASED.lines().any(|r| r == *line)).collect();
    assert!(
        new.is_empty(),
        "new; add these lines to tests/schema.txt:\n{}",
        new.iter().map(|l| format!("{l}\n")).collect::<String>()
    );
}

#[test]
fn every_method_of_the_interface_exists() {
    for method in [
        "Registry.Attach",
        "Registry.Watch",
        "Registry.List",
        "Registry.Get",
        "Admin.Drain",
        "Admin.Explain",
        "Log.Submit",
        "Log.Read",
        "Log.Resolve",
        "Log.Members",
        "Log.Status",
        "Log.Backup",
    ] {
        assert!(lines().iter().any(|line| line.starts_with(&format!("rpc {method} "))), "{method}");
    }
}

fn lines() -> Vec<String> {
    let set = FileDescriptorSet::decode(convoke_proto::FILE_DESCRIPTOR_SET).unwrap();
    let mut lines = Vec::new();
    for file in &set.file {
        for message in &file.message_type {
            describe_message("", message, &mut lines);
        }
        for enumeration in &file.enum_type {
            describe_enum("", enumeration, &mut lines);
        }
        for service in &file.service {
            for method in &service.method {
                let stream = |on: bool| if on { "stream " } else { "" };
                lines.push(format!(
                    "rpc {}.{} {}{} -> {}{}",
                    service.name(),
                    method.name(),
                    stream(method.client_streaming()),
                    method.input_type(),
                    stream(method.server_streaming()),
                    method.output_type()
                ));
            }
        }
    }
    lines
}

fn describe_message(prefix: &str, message: &DescriptorProto, lines: &mut Vec<String>) {
    let name = format!("{prefix}{}", message.name());
    for field in &message.field {
        let kind = match field.r#type() {
            Type::Message | Type::Enum => field.type_name().to_owned(),
            other => other.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
        };
        let label = field.label().as_str_name().trim_start_matches("LABEL_").to_lowercase();
        lines.push(format!("{name}.{} = {} {label} {kind}", field.name(), field.number()));
    }
    for nested in &message.nested_type {
        describe_message(&format!("{name}."), nested, lines);
    }
    for enumeration in &message.enum_type {
        describe_enum(&format!("{name}."), enumeration, lines);
    }
}

fn describe_enum(prefix: &str, enumeration: &EnumDescriptorProto, lines: &mut Vec<String>) {
    for value in &enumeration.value {
        lines.push(format!("{prefix}{}.{} = {}", enumeration.name(), value.name(), value.number()));
    }
}
