//! CRC-32C, the checksum of datagrams and of state files.
//!
//! Castagnoli's polynomial, as RFC 3720 has it in section 12.1 for iSCSI, with the bits of each byte
//! reflected. Written here, as it is short: a crate for it would bring the library's users two more.

/// Sixteen bytes at a time: a byte at a time a datagram's checksum took longer than all else of it.
const AT_ONCE: usize = 16;
/// `TABLES[n][b]` is what the byte `b` makes of the checksum when `n` more bytes follow it.
static TABLES: [[u32; 256]; AT_ONCE] = tables();

/// The CRC-32C of these bytes.
pub fn crc_32c(bytes: &[u8]) -> u32 {
    let (blocks, rest) = bytes.as_chunks::<AT_ONCE>();
    let mut crc = !0_u32;
    for block in blocks {
        let mut block = *block;
        for (byte, before) in block.iter_mut().zip(crc.to_le_bytes()) {
            *byte ^= before;
        }
        crc = 0;
        for (table, byte) in TABLES.iter().rev().zip(block) {
            crc ^= table[usize::from(byte)];
        }
    }
    for byte in rest {
        crc = (crc >> 8) ^ TABLES[0][(crc as u8 ^ byte) as usize];
    }
    !crc
}

const fn tables() -> [[u32; 256]; AT_ONCE] {
    /// 0x1EDC6F41, reflected.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut tables = [[0; 256]; AT_ONCE];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut entry = 256;
    while entry < 256 * AT_ONCE {
        let before = tables[entry / 256 - 1][entry % 256];
        tables[entry / 256][entry % 256] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
        entry += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use core::array;

    use super::*;

    /// RFC 3720, appendix B.4, and the check value of the catalogue of CRCs.
    #[test]
    fn published_checksums() {
        assert_eq!(crc_32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc_32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(
            crc_32c(&array::from_fn::<u8, 32, _>(|at| at as u8)),
            0x46dd_794e
        );
        assert_eq!(
            crc_32c(&array::from_fn::<u8, 32, _>(|at| 31 - at as u8)),
            0x113f_db5c
        );
        assert_eq!(crc_32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc_32c(b""), 0);
    }

    /// Whole blocks and what is left of one are the same polynomial's, bit by bit.
    #[test]
    fn every_length_is_divided_out() {
        let bytes = array::from_fn::<u8, 67, _>(|at| (at * 151 + 29) as u8);
        for len in 0..=bytes.len() {
            let mut crc = !0_u32;
            for byte in &bytes[..len] {
                crc ^= u32::from(*byte);
                for _ in 0..8 {
                    crc = (crc >> 1) ^ (0x82f6_3b78 * (crc & 1));
                }
            }
            assert_eq!(crc_32c(&bytes[..len]), !crc, "{len} bytes");
        }
    }
}
