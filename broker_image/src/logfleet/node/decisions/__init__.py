"""Why a broker did what it did: where its decisions are kept, and what happens to it that is noted among them."""
