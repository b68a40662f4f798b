//! Decoding of queries, and encoding of responses within a size limit.

use hickory_proto::ProtoError;
use hickory_proto::op::{Edns, Header, HeaderCounts, Message, MessageType, Metadata, OpCode, Query, ResponseCode};
use hickory_proto::rr::Record;
use hickory_proto::serialize::binary::{BinEncodable, BinEncoder};

const HEADER_BYTES: usize = 12;
/// Size of an OPT record without options.
const OPT_BYTES: u16 = 11;
/// Largest UDP payload that this server offers and sends. It passes every common path without fragmentation.
pub(crate) const UDP_BYTES: u16 = 1_232;
const UDP_BYTES_PLAIN: u16 = 512;

/// The result of decoding a packet.
#[derive(Debug)]
pub(crate) enum Parsed {
    Question(Box<Question>),
    Invalid(Metadata, ResponseCode),
    /// The packet gets no response: it has no header, or it is itself a response. Responding to responses causes loops.
    Ignored,
}

#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) query: Query,
    pub(crate) metadata: Metadata,
    /// EDNS options of the client.
    edns: Option<Edns>,
}

impl Question {
    pub(crate) fn edns_version(&self) -> u8 {
        self.edns.as_ref().map_or(0, Edns::version)
    }

    pub(crate) fn udp_bytes(&self) -> u16 {
        self.edns.as_ref().map_or(UDP_BYTES_PLAIN, |edns| edns.max_payload().clamp(UDP_BYTES_PLAIN, UDP_BYTES))
    }
}

pub(crate) fn read(bytes: &[u8]) -> Parsed {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Parsed::Ignored };
    let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let op_code = OpCode::from_u8(header[2] >> 3 & 0xf);
    let mut metadata = Metadata::new(number(0), MessageType::Response, op_code);
    metadata.recursion_desired = header[2] & 1 != 0;
    if header[2] & 0x80 != 0 {
        return Parsed::Ignored;
    }
    if op_code != OpCode::Query {
        return Parsed::Invalid(metadata, ResponseCode::NotImp);
    }
    // Checked before decoding allocates memory: one question, and no records but OPT and a signature.
    if number(4) != 1 || number(6) != 0 || number(8) != 0 || number(10) > 2 {
        return Parsed::Invalid(metadata, ResponseCode::FormErr);
    }
    let Ok(mut message) = Message::from_vec(bytes) else { return Parsed::Invalid(metadata, ResponseCode::FormErr) };
    let Some(query) = message.queries.pop() else { return Parsed::Invalid(metadata, ResponseCode::FormErr) };
    metadata.checking_disabled = message.metadata.checking_disabled;
    Parsed::Question(Box::new(Question { query, metadata, edns: message.edns }))
}

#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) code: ResponseCode,
    pub(crate) authoritative: bool,
    pub(crate) answers: Vec<Record>,
    pub(crate) authorities: Vec<Record>,
    pub(crate) additionals: Vec<Record>,
}

impl Answer {
    pub(crate) fn code(code: ResponseCode) -> Self {
        Answer { code, ..Answer::default() }
    }
}

/// Encodes an error response without a question.
pub(crate) fn write_error(metadata: Metadata, code: ResponseCode) -> Result<Vec<u8>, ProtoError> {
    let mut message = Message::response(metadata.id, metadata.op_code);
    message.metadata = metadata;
    message.metadata.response_code = code;
    message.to_vec()
}

/// Encodes a response with the TC bit and no records.
pub(crate) fn write_truncated(question: &Question) -> Result<Vec<u8>, ProtoError> {
    let mut message = Message::response(question.metadata.id, question.metadata.op_code);
    message.metadata = question.metadata;
    message.metadata.truncation = true;
    message.add_query(question.query.clone());
    message.to_vec()
}

/// Encodes a response in at most `bytes_max` bytes. Also returns whether records were cut off (Q7).
pub(crate) fn write(question: &Question, answer: &Answer, bytes_max: u16) -> Result<(Vec<u8>, bool), ProtoError> {
    let mut bytes = Vec::with_capacity(UDP_BYTES.into());
    let mut encoder = BinEncoder::new(&mut bytes);
    let edns = question.edns.as_ref().map(|_| {
        let mut edns = Edns::new();
        edns.set_max_payload(UDP_BYTES).set_version(0).set_rcode_high(answer.code.high());
        Record::from(&edns)
    });
    encoder.set_max_size(if edns.is_some() { bytes_max - OPT_BYTES } else { bytes_max });
    let place = encoder.place::<Header>()?;
    question.query.emit(&mut encoder)?;
    let (answers, answers_cut) = emit(&mut encoder, &answer.answers)?;
    let (authorities, authorities_cut) = emit(&mut encoder, &answer.authorities)?;
    let (mut additionals, _) = emit(&mut encoder, &answer.additionals)?;
    encoder.set_max_size(bytes_max);
    if let Some(edns) = edns {
        edns.emit(&mut encoder)?;
        additionals += 1;
    }
    let cut = answers_cut || authorities_cut;
    let mut metadata = question.metadata;
    metadata.response_code = answer.code;
    metadata.authoritative = answer.authoritative;
    metadata.truncation = cut;
    let counts = HeaderCounts { queries: 1, answers, authorities, additionals };
    place.replace(&mut encoder, Header { metadata, counts })?;
    Ok((bytes, cut))
}

/// Writes as many records as fit. Returns their number, and whether some did not fit.
fn emit(encoder: &mut BinEncoder<'_>, records: &[Record]) -> Result<(u16, bool), ProtoError> {
    let (count, cut) = match encoder.emit_all(records.iter()) {
        Ok(count) => (count, false),
        Err(ProtoError::NotAllRecordsWritten { count, .. }) => (count, true),
        Err(error) => return Err(error),
    };
    Ok((u16::try_from(count).unwrap_or(u16::MAX), cut))
}
