//! Requests of strangers who mean harm.

use idem_layer::testing::Verb;
use idem_tests::http::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower::Layer;

use crate::rig::*;

/// What comes back first, of a client that waits for more.
async fn exchange(server: &Server, rest: &str) -> String {
    let mut socket = TcpStream::connect(server.address()).await.unwrap();
    let request = format!("POST /x HTTP/1.1\r\nhost: h\r\nidempotency-key: k\r\n{rest}");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = vec![0; 4096];
    let length = socket.read(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

#[test]
fn whoever_lies_about_a_body_is_told_so_while_he_waits_and_claims_nothing() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let layer = rig.layer().request_limit(16).build().unwrap();
        let server = Server::start(layer.layer(counted(&runs))).await;
        for (rest, status, code) in [
            ("content-length: 17\r\nexpect: 100-continue\r\n\r\n", 413, "body-too-large"),
            ("content-length: 9223372036854775807\r\n\r\n", 413, "body-too-large"),
            ("content-length: 1\r\nexpect: 100-continue\r\nidempotency-key: l\r\n\r\n", 400, "key-malformed"),
            ("transfer-encoding: chunked\r\n\r\nffffffffffffffff1\r\nx", 400, "body-incomplete"),
            ("transfer-encoding: chunked\r\n\r\nzz\r\nx", 400, "body-incomplete"),
            ("transfer-encoding: chunked\r\n\r\n1\r\nxy\r\n0\r\n\r\n", 400, "body-incomplete"),
            ("transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nbad trailer\r\n\r\n", 400, "body-incomplete"),
            ("transfer-encoding: chunked\r\n\r\n11\r\n0123456789abcdefg", 413, "body-too-large"),
        ] {
            let answer = exchange(&server, rest).await;
            let refused = answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains(code);
            assert!(refused, "{rest:?}: {answer}");
        }
        assert_eq!((rig.faults.calls(Verb::Acquire), runs.count()), (0, 0));
        // Where both lengths are given, chunks count (RFC 9112, section 6.3).
        let both = "content-length: 99\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n";
        assert!(exchange(&server, both).await.contains("run 1"));
        assert!(exchange(&server, "content-length: 1\r\n\r\nx").await.contains("idempotent-replayed: true"));
    });
}
