//! How messages are put on streams: like `tonic_prost::ProstCodec`, with memory that fits streams which are mostly idle.

use prost::Message;
use std::marker::PhantomData;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic_prost::ProstCodec;

/// A stream holds a buffer of this size in each direction as long as it lives. Heartbeats and their answers are much smaller.
const BUFFER: usize = 512;
/// What has gathered is passed on from this size on. A large message therefore goes alone, and its memory with it: what follows
/// it is written into a new buffer.
const PASS_ON: usize = 4 * 1024;

/// The codec of all services.
#[derive(Clone, Debug)]
pub struct SparingCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SparingCodec<T, U> {
    fn default() -> Self {
        SparingCodec(PhantomData)
    }
}

impl<T, U> Codec for SparingCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = SparingEncoder<T>;
    type Decoder = <ProstCodec<T, U> as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        SparingEncoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(settings())
    }
}

fn settings() -> BufferSettings {
    BufferSettings::new(BUFFER, PASS_ON)
}

/// Takes as much memory as the message needs, at once.
#[derive(Clone, Debug)]
pub struct SparingEncoder<T>(PhantomData<T>);

impl<T: Message> Encoder for SparingEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.reserve(item.encoded_len());
        item.encode_raw(into);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        settings()
    }
}
