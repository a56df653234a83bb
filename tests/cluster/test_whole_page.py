"""phpLDAPadmin's page as an administrator uses it, in headless Chromium: who is made there logs in. Its picture is kept in artifacts/."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import pytest

from tests.cluster.pods import until
from tests.cluster.whole import Whole
from tests.lab import browser
from tests.lab.controlplane import TREE
from tests.lab.whole import overlay
from tests.lab.whole.overlay import BASE, User

PICTURE: Final = TREE / "artifacts/phpldapadmin.png"
PASSWORD: Final = "input[type=password]"


def test_who_is_made_on_the_page_logs_in(whole: Whole) -> None:
    if why := browser.missing():
        pytest.skip(why)
    user = overlay.new_user(f"mary{os.getpid()}", 40000 + os.getpid())
    template = "{{.data.password | base64decode}}"
    password = whole.kubectl("get", "secret", "ldap-admin", "-o", f"go-template={template}")
    with whole.forwarded("service/phpldapadmin", 80) as port:
        asyncio.run(_make(f"http://127.0.0.1:{port}", password, user, PICTURE))
    assert PICTURE.read_bytes().startswith(b"\x89PNG")
    until(lambda: whole.ssh("id -u", user).stdout.strip() == str(user.number), f"{user.name} to log in")


async def _make(url: str, password: str, user: User, picture: Path) -> None:
    """Logs in as the directory's administrator, imports the user's entry and looks at it."""
    async with browser.page() as page:
        await page.open(f"{url}/cmd.php?cmd=login_form&server_id=1")
        await page.until(f"!!document.querySelector('{PASSWORD}')")
        assert await page.value("document.querySelector('input[name=login]').value") == f"cn=admin,{BASE}"
        await page.value(f"document.querySelector('{PASSWORD}').value = {json.dumps(password)}")
        await page.value(f"document.querySelector('{PASSWORD}').form.querySelector('[type=submit]').click()")
        await page.until("document.body.innerText.includes('Successfully logged into server')")
        await page.open(f"{url}/cmd.php?cmd=import_form&server_id=1")
        await page.until("!!document.querySelector('textarea[name=ldif]')")
        await page.value(f"document.querySelector('textarea[name=ldif]').value = {json.dumps(user.entries())}")
        await page.value("document.querySelector('textarea[name=ldif]').form.querySelector('[type=submit]').click()")
        await page.until("document.body.innerText.includes('Success')")
        entry = urlencode({"cmd": "template_engine", "server_id": 1, "dn": f"uid={user.name},ou=people,{BASE}"})
        await page.open(f"{url}/cmd.php?{entry}")
        await page.until(f"[...document.querySelectorAll('input')].some(one => one.value == '/home/{user.name}')")
        await page.picture(picture)
