"""Feeds: messages for whoever follows a channel, now or a little later; see `onebus.objects.feeds.feeds`."""
