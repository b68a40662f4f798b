//! Tests of commands: golden bytes, round trips, hostile bytes.

mod coordination_golden;
mod coordination_samples;
mod golden;
mod hostile;
mod samples;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
