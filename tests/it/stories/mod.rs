//! Payments as the world would make them: each test is a story over real HTTP, real transfers and real settlements.

mod app;
mod crowd;
mod deadline;
mod exact;
mod killed;
mod misfits;
mod reorgs;
mod restarts;

use crate::receiver::Receiver;
use crate::world::World;
use app::StoryApp;

/// A fresh sandbox in this process, and the PSP's view of it.
async fn story() -> (StoryApp, World) {
    let (app, world, _) = story_with_receiver().await;
    (app, world)
}

/// The same with the PSP's webhook receiver, which otherwise ends at once.
async fn story_with_receiver() -> (StoryApp, World, Receiver) {
    let (app, receiver) = (StoryApp::start().await, Receiver::start().await);
    let world = World::connect(app.url(), app.api_key(), &receiver).await;
    (app, world, receiver)
}
