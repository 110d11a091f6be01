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
//! The checksum covers everything after it: length, type, file number and payload. So zeros are no
//! fragment, and neither is a fragment of another file that used the same disk blocks before. A
//! payload must not end in a zero byte, so that a record that was cut off inside the zeros of a
//! preallocated log is recognized.
//!
//! [`writer`] appends, and [`syncer`] syncs at the same time. [`reader`] reads back, and says
//! whether a crash can have caused a bad place; `wal` and `tree::manifest` decide what that means
//! for the data.

pub(crate) mod reader;
pub(crate) mod writer;
pub(crate) mod syncer;
pub(crate) mod format;
