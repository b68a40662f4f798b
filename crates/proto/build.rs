//! Compiles `proto/` with protox: pure Rust, no protoc.

use std::error::Error;
use std::path::PathBuf;

const FILES: [&str; 4] =
    ["convoke/v1/types.proto", "convoke/v1/registry.proto", "convoke/v1/admin.proto", "convoke/v1/log.proto"];

/// Messages whose generated type is also their JSON form. Members and errors have their own types in `src/json.rs` and
/// `src/error.rs`.
const JSON: [&str; 24] = [
    "StatusResponse",
    "StatusResponse.Ports",
    "StatusResponse.Counts",
    "StatusResponse.Tls",
    "NodesResponse",
    "Node",
    "ServicesResponse",
    "Service",
    "ExplainResponse",
    "ExplainResponse.Evidence",
    "ExplainResponse.Inferred",
    "ExplainResponse.Session",
    "ExplainResponse.Departure",
    "ExplainResponse.Change",
    "ExplainResponse.Maintenance",
    "LogStatusResponse",
    "Replica",
    "RequestId",
    "Error.Position",
    "MembersResponse",
    "SessionsResponse",
    "LogSession",
    "EndSessionsResponse",
    "UpgradeResponse",
];

/// Messages whose bytes are shared and not copied.
const BYTES: [&str; 22] = [
    "PutKey",
    "DeleteKeys",
    "KeyRange",
    "KeyValue",
    "BackupResponse",
    "ReadRequest",
    "Compare",
    "LockGuard",
    "TxnPut",
    "TxnDelete",
    "KeyQuery",
    "KeyWatch",
    "KeyEvent",
    "AcquireLock",
    "ReleaseLock",
    "Proclaim",
    "AwaitPlace",
    "LockQuery",
    "Lease",
    "Lock",
    "LockHolder",
    "LockEvent",
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut compiler = protox::Compiler::new([&root])?;
    compiler.include_imports(true).include_source_info(true).open_files(FILES)?;

    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;

    // Sorted maps make the encoding deterministic. Values of keys are `Bytes`, which are shared and not copied.
    let services = std::env::var_os("CARGO_FEATURE_GRPC").is_some();
    let mut builder = tonic_prost_build::configure()
        .build_client(services)
        .build_server(services)
        .build_transport(false)
        .btree_map(".")
        .codec_path("crate::LowMemoryCodec");
    for message in BYTES {
        builder = builder.bytes(format!(".convoke.v1.{message}"));
    }
    for message in JSON {
        let derive = "#[derive(serde::Serialize, serde::Deserialize)]\n#[serde(default)]";
        builder = builder.message_attribute(format!("convoke.v1.{message}"), derive);
    }
    for (field, with) in [
        ("Node.state", "crate::json::node_state"),
        ("ExplainResponse.status", "crate::json::status"),
        ("ExplainResponse.stated", "crate::json::status"),
        ("ExplainResponse.Change.status", "crate::json::status"),
    ] {
        builder = builder.field_attribute(format!("convoke.v1.{field}"), format!("#[serde(with = {with:?})]"));
    }
    let hex = "#[serde(with = \"crate::log::log_id_text\", skip_serializing_if = \"Option::is_none\")]";
    builder = builder.field_attribute("convoke.v1.RequestId.log", hex);
    builder = builder.field_attribute("convoke.v1.EndSessionsResponse.more", "#[serde(skip)]");
    builder = builder.field_attribute("convoke.v1.Node.self", "#[serde(rename = \"self\")]");
    builder.compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
