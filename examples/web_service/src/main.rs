//! `cargo run -- 127.0.0.1:8080`, as often as there are ports; then, at two of them at once:
//! `curl -X POST 127.0.0.1:8080/reports/sales`.

use std::error::Error;

use distlock::Agent;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args()
        .nth(1)
        .ok_or("which address? For example 127.0.0.1:8080")?;
    let listener = TcpListener::bind(&address).await?;
    let agent = Agent::open()?;
    println!("listening on {}", listener.local_addr()?);
    let end = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    let service = web_service::service(agent.clone());
    axum::serve(listener, service)
        .with_graceful_shutdown(end)
        .await?;
    agent.close();
    Ok(())
}
