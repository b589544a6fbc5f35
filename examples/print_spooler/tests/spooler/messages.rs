//! Each line is a message of its own, as the lecture's printer wants it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

use crate::print_spooler;

/// A printer that accepts everything, has every job completed, and returns what the second request
/// (Send-Document) brought, chunk by chunk.
fn print_over_ipp(printer: &TcpListener) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    // Create-Job, Send-Document, Get-Job-Attributes.
    for _ in 0..3 {
        let (connection, _) = printer.accept().unwrap();
        let mut request = BufReader::new(&connection);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            request.read_line(&mut line).unwrap();
        }
        bodies.push(chunks(request));
        answer(&connection);
    }
    bodies.swap_remove(1)
}

/// The chunks of a body (RFC 9112, 7.1).
fn chunks(mut body: impl BufRead) -> Vec<Vec<u8>> {
    let mut chunks = Vec::new();
    loop {
        let mut length = String::new();
        body.read_line(&mut length).unwrap();
        let length = usize::from_str_radix(length.trim_end(), 16).unwrap();
        let mut chunk = vec![0; length + 2];
        body.read_exact(&mut chunk).unwrap();
        assert_eq!(chunk.split_off(length), b"\r\n");
        if chunk.is_empty() {
            return chunks;
        }
        chunks.push(chunk);
    }
}

/// Success, job 7, in state 9: completed (RFC 8010, 3.1).
fn answer(mut connection: &TcpStream) {
    let mut response = b"\x02\x00\x00\x00\x00\x00\x00\x01\x01".to_vec();
    response.extend(b"\x47\x00\x12attributes-charset\x00\x05utf-8");
    response.extend(b"\x48\x00\x1battributes-natural-language\x00\x02en");
    response.extend(b"\x02\x21\x00\x06job-id\x00\x04\x00\x00\x00\x07");
    response.extend(b"\x23\x00\x09job-state\x00\x04\x00\x00\x00\x09\x03");
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/ipp\r\nConnection: close\r\n";
    write!(
        connection,
        "{head}Content-Length: {}\r\n\r\n",
        response.len()
    )
    .unwrap();
    connection.write_all(&response).unwrap();
}

#[test]
fn over_ipp_a_job_is_a_file_and_a_chunk_is_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "one\ntwo\nwithout an end").unwrap();
    let printer = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("ipp://{}/ipp/print", printer.local_addr().unwrap());
    let mut host = print_spooler();
    let mut host = host
        .args(["--printer", &uri, "--no-lock"])
        .arg(file)
        .spawn()
        .unwrap();

    let chunks = print_over_ipp(&printer);
    let lines: Vec<_> = chunks[1..]
        .iter()
        .map(|chunk| str::from_utf8(chunk).unwrap())
        .collect();
    assert_eq!(
        lines,
        ["==== file, no fence\n", "one\n", "two\n", "without an end"]
    );
    assert!(host.wait().unwrap().success());
}
