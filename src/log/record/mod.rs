//! Framed, checksummed records: the one format of write-ahead logs and manifests.
//!
//! ```text
//! file     := header  page*            pages are 32 KiB; the header is the front of the first
//! header   := magic: 8  version: u32  file number, low half: u32  masked CRC-32 of these: u32
//! page     := fragment*  zeros         zeros fill a page with no room for a header and a byte
//! fragment := masked CRC-32: u32  length: u16  type: u8  file number, low half: u32  payload
//! type     := 1 full | 2 first | 3 middle | 4 last
//! ```
//!
//! The checksum covers everything behind it: length, type, file number and payload. So no run of
//! zeros is a fragment, nor is one that another file left behind. A payload must not end in a
//! zero byte: a record cut short inside the zeros of a preallocated log shows that way.
//!
//! [`writer`] appends, [`reader`] reads back and says of a bad place whether a crash can have left
//! it. What a bad place means for the data is decided above, in `wal` and `tree::manifest`.

pub mod reader;
pub mod writer;
pub mod format;
